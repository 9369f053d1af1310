// stmatrix (PTX ISA): the reverse of ldmatrix.
#pragma once

#include "warp_matrix.hpp"

namespace fagen::emu {

// .m8n8.x{count}.b16: lanes 8i..8i+7 give the row addresses of matrix i; lane l has elements 2(l%4) and the
// next of row l/4 of each, or of its transpose.
FAGEN_EMU_ENTRY void store_matrix(uint32_t address, const uint32_t* from, uint32_t count, bool transposed) {
  struct Args {
    Thread& thread;
    uint32_t address;
    const uint32_t* from;
  };
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Args args{thread, address, from};
  warp_collective(thread, transposed ? "stmatrix.trans" : "stmatrix", count, kWholeWarp, args,
                  [&](Lanes<Args> lanes) {
                    for (uint32_t i = 0; i < count; ++i) {
                      uint16_t matrix[8][8];
                      for (uint32_t lane = 0; lane < 32; ++lane)
                        for (uint32_t half = 0; half < 2; ++half) {
                          uint32_t row = lane / 4, col = lane % 4 * 2 + half;
                          (transposed ? matrix[col][row] : matrix[row][col]) =
                              static_cast<uint16_t>(lanes[lane]->from[i] >> 16 * half);
                        }
                      for (uint32_t row = 0; row < 8; ++row) {
                        Args& giver = *lanes[8 * i + row];
                        shared_write(giver.thread, giver.address, matrix[row], 16, 16);
                      }
                    }
                  });
}

}  // namespace fagen::emu
