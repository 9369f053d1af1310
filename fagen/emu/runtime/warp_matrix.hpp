// ldmatrix and mma.sync (PTX ISA, "Matrix multiply-accumulate operation using mma instruction").
#pragma once

#include "collective.hpp"
#include "float16.hpp"
#include "shared.hpp"

namespace fagen::emu {

inline constexpr uint32_t kWholeWarp = 0xffffffffu;

// ldmatrix .m8n8.x{count}.b16: lanes 8i..8i+7 give the rows of matrix i; lane l gets elements 2(l%4) and the
// next of row l/4 of each, or of its transpose.
FAGEN_EMU_ENTRY void load_matrix(uint32_t* to, uint32_t count, bool transposed, uint32_t address) {
  struct Args {
    Thread& thread;
    uint32_t address;
    uint32_t* to;
  };
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Args args{thread, address, to};
  warp_collective(thread, transposed ? "ldmatrix.trans" : "ldmatrix", count, kWholeWarp, args,
                  [&](Lanes<Args> lanes) {
                    for (uint32_t i = 0; i < count; ++i) {
                      uint16_t matrix[8][8];
                      for (uint32_t row = 0; row < 8; ++row) {
                        Args& giver = *lanes[8 * i + row];
                        shared_read(giver.thread, giver.address, matrix[row], 16, 16);
                      }
                      for (uint32_t lane = 0; lane < 32; ++lane) {
                        uint32_t row = lane / 4, col = lane % 4 * 2;
                        uint16_t low = transposed ? matrix[col][row] : matrix[row][col];
                        uint16_t high = transposed ? matrix[col + 1][row] : matrix[row][col + 1];
                        lanes[lane]->to[i] = low | static_cast<uint32_t>(high) << 16;
                      }
                    }
                  });
}

// mma.sync .m16n8k{K}.row.col.f32: D += A B with elements of `Bits` bits that the decoders turn into fp32,
// two or four to a register. Register r of A holds row g + 8 (r % 2), k-half r / 2; register r of B k-half r,
// column g; of D row g + 8 (r / 2), column 2t + r % 2; with g = lane / 4, t = lane % 4.
template <uint32_t Bits, class DecodeA, class DecodeB>
void multiply_warp(Thread& thread, const char* op, float (&d)[4], const uint32_t (&a)[4],
                   const uint32_t (&b)[2], DecodeA decode_a, DecodeB decode_b) {
  struct Args {
    float (&d)[4];
    const uint32_t (&a)[4];
    const uint32_t (&b)[2];
  };
  constexpr uint32_t kEach = 32 / Bits, kHalf = 4 * kEach, kK = 2 * kHalf;
  Args args{d, a, b};
  warp_collective(thread, op, 0, kWholeWarp, args, [&](Lanes<Args> lanes) {
    float left[16][kK], right[8][kK];
    for (uint32_t lane = 0; lane < 32; ++lane) {
      uint32_t g = lane / 4, k = lane % 4 * kEach;
      for (uint32_t i = 0; i < kEach; ++i) {
        auto element = [&](uint32_t word) { return word >> (i * Bits) & ((1u << Bits) - 1); };
        for (uint32_t r = 0; r < 4; ++r)
          left[g + r % 2 * 8][r / 2 * kHalf + k + i] = decode_a(element(lanes[lane]->a[r]));
        for (uint32_t r = 0; r < 2; ++r) right[g][r * kHalf + k + i] = decode_b(element(lanes[lane]->b[r]));
      }
    }
    for (uint32_t lane = 0; lane < 32; ++lane)
      for (uint32_t r = 0; r < 4; ++r) {
        const float* row = left[lane / 4 + r / 2 * 8];
        const float* column = right[lane % 4 * 2 + r % 2];
        float sum = lanes[lane]->d[r];
        for (uint32_t k = 0; k < kK; ++k) sum += row[k] * column[k];
        lanes[lane]->d[r] = sum;
      }
  });
}

FAGEN_EMU_ENTRY void mma_fp16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  multiply_warp<16>(FAGEN_EMU_ENTER(), "mma.m16n8k16.f16", d, a, b, float_of_fp16, float_of_fp16);
}

FAGEN_EMU_ENTRY void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  multiply_warp<16>(FAGEN_EMU_ENTER(), "mma.m16n8k16.bf16", d, a, b, float_of_bf16, float_of_bf16);
}

}  // namespace fagen::emu
