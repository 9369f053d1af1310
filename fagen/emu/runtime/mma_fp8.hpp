// mma.sync with 8-bit operands.
#pragma once

#include "float8.hpp"
#include "warp_matrix.hpp"

namespace fagen::emu {

// `decode_a` and `decode_b` turn elements into fp32.
template <class DecodeA, class DecodeB>
FAGEN_EMU_ENTRY void mma_fp8(const char* op, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             DecodeA decode_a, DecodeB decode_b) {
  multiply_warp<8>(FAGEN_EMU_ENTER(), op, d, a, b, decode_a, decode_b);
}

}  // namespace fagen::emu
