// wgmma m64nNk16 (16-bit operands) and m64nNk32 (8-bit): D = A B or D += A B on a warpgroup, asynchronously
// (PTX ISA, "Asynchronous warpgroup level matrix instructions"; sm_90a). All four warps of the warpgroup.
//
// With w = warp % 4, g = lane/4 and t = lane%4, accumulator register i holds row 16w + g + 8 (i/2 % 2),
// column 8 (i/4) + 2t + i%2: in every warp, mma.sync's layout, and so is that of A in registers. A and B in
// shared memory are given by descriptors (smem/descriptor_sm90.cuh).
//
// From wgmma to the wgmma_wait that covers it, D and A in registers may be neither read nor written, and stay
// where they are.
#pragma once

#include "fagen/base/fp8.cuh"
#include "fagen/base/types.cuh"

namespace fagen::ptx {

// The dimension that an operand in shared memory is contiguous along: K, or M of A and N of B.
enum class Major { kK = 0, kMN = 1 };

}  // namespace fagen::ptx

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/wgmma.cuh"
#else

#include "fagen/ptx/type_name.cuh"

namespace fagen::ptx {

// Before the first wgmma, and after other instructions touched D, or A in registers.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes the group of the warpgroup's wgmmas so far.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all but the newest kPending groups are complete.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving accesses of the registers across: before wgmma_fence, after wgmma_wait.
template <int kRegisters>
__device__ __forceinline__ void pin(float (&d)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// ptxas takes wgmma_wait for something to get behind it early, and moves the computations before it, which
// should run while the products do, past it. These values, none of which is negative, stop it: were one, the
// kernel would end here. The vote keeps the warp together in the compiler's eyes.
__device__ __forceinline__ void finish_before_wait(float a, float b) {
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.lt.f32 p, %0, 0f00000000;\n"
      "setp.lt.or.f32 p, %1, 0f00000000, p;\n"
      "vote.sync.any.pred q, p, 0xffffffff;\n"
      "@q trap;\n}" ::"f"(a),
      "f"(b)
      : "memory");
}

namespace detail {

// K of one instruction.
template <int kElementBytes>
struct WgmmaDepth {
  static constexpr char kText[] = {'k', kElementBytes == 1 ? '3' : '1', kElementBytes == 1 ? '2' : '6', 0};
};

// The last operands: the signs of A and B, both +, and which 16-bit operands in shared memory are MN-major.
template <Major... kMajors>
struct WgmmaTail;
template <>
struct WgmmaTail<> {
  static constexpr char kText[] = "1, 1";
};
template <Major kB>
struct WgmmaTail<kB> {
  static constexpr char kText[] = {'1', ',', '1', ',', '0' + static_cast<int>(kB), 0};
};
template <Major kA, Major kB>
struct WgmmaTail<kA, kB> {
  static constexpr char kText[] = {
      '1', ',', '1', ',', '0' + static_cast<int>(kA), ',', '0' + static_cast<int>(kB), 0};
};

// The accumulator as operands and as text, for N = 8, 16, ...: every line adds four registers to the last.
// clang-format off
#define FAGEN_D(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FAGEN_D_8 FAGEN_D(0)
#define FAGEN_D_16 FAGEN_D_8, FAGEN_D(4)
#define FAGEN_D_24 FAGEN_D_16, FAGEN_D(8)
#define FAGEN_D_32 FAGEN_D_24, FAGEN_D(12)
#define FAGEN_D_40 FAGEN_D_32, FAGEN_D(16)
#define FAGEN_D_48 FAGEN_D_40, FAGEN_D(20)
#define FAGEN_D_56 FAGEN_D_48, FAGEN_D(24)
#define FAGEN_D_64 FAGEN_D_56, FAGEN_D(28)
#define FAGEN_D_72 FAGEN_D_64, FAGEN_D(32)
#define FAGEN_D_80 FAGEN_D_72, FAGEN_D(36)
#define FAGEN_D_88 FAGEN_D_80, FAGEN_D(40)
#define FAGEN_D_96 FAGEN_D_88, FAGEN_D(44)
#define FAGEN_D_104 FAGEN_D_96, FAGEN_D(48)
#define FAGEN_D_112 FAGEN_D_104, FAGEN_D(52)
#define FAGEN_D_120 FAGEN_D_112, FAGEN_D(56)
#define FAGEN_D_128 FAGEN_D_120, FAGEN_D(60)
#define FAGEN_D_136 FAGEN_D_128, FAGEN_D(64)
#define FAGEN_D_144 FAGEN_D_136, FAGEN_D(68)
#define FAGEN_D_152 FAGEN_D_144, FAGEN_D(72)
#define FAGEN_D_160 FAGEN_D_152, FAGEN_D(76)
#define FAGEN_D_168 FAGEN_D_160, FAGEN_D(80)
#define FAGEN_D_176 FAGEN_D_168, FAGEN_D(84)
#define FAGEN_D_184 FAGEN_D_176, FAGEN_D(88)
#define FAGEN_D_192 FAGEN_D_184, FAGEN_D(92)
#define FAGEN_D_200 FAGEN_D_192, FAGEN_D(96)
#define FAGEN_D_208 FAGEN_D_200, FAGEN_D(100)
#define FAGEN_D_216 FAGEN_D_208, FAGEN_D(104)
#define FAGEN_D_224 FAGEN_D_216, FAGEN_D(108)
#define FAGEN_D_232 FAGEN_D_224, FAGEN_D(112)
#define FAGEN_D_240 FAGEN_D_232, FAGEN_D(116)
#define FAGEN_D_248 FAGEN_D_240, FAGEN_D(120)
#define FAGEN_D_256 FAGEN_D_248, FAGEN_D(124)
#define FAGEN_T_8 "%0,%1,%2,%3"
#define FAGEN_T_16 FAGEN_T_8 ",%4,%5,%6,%7"
#define FAGEN_T_24 FAGEN_T_16 ",%8,%9,%10,%11"
#define FAGEN_T_32 FAGEN_T_24 ",%12,%13,%14,%15"
#define FAGEN_T_40 FAGEN_T_32 ",%16,%17,%18,%19"
#define FAGEN_T_48 FAGEN_T_40 ",%20,%21,%22,%23"
#define FAGEN_T_56 FAGEN_T_48 ",%24,%25,%26,%27"
#define FAGEN_T_64 FAGEN_T_56 ",%28,%29,%30,%31"
#define FAGEN_T_72 FAGEN_T_64 ",%32,%33,%34,%35"
#define FAGEN_T_80 FAGEN_T_72 ",%36,%37,%38,%39"
#define FAGEN_T_88 FAGEN_T_80 ",%40,%41,%42,%43"
#define FAGEN_T_96 FAGEN_T_88 ",%44,%45,%46,%47"
#define FAGEN_T_104 FAGEN_T_96 ",%48,%49,%50,%51"
#define FAGEN_T_112 FAGEN_T_104 ",%52,%53,%54,%55"
#define FAGEN_T_120 FAGEN_T_112 ",%56,%57,%58,%59"
#define FAGEN_T_128 FAGEN_T_120 ",%60,%61,%62,%63"
#define FAGEN_T_136 FAGEN_T_128 ",%64,%65,%66,%67"
#define FAGEN_T_144 FAGEN_T_136 ",%68,%69,%70,%71"
#define FAGEN_T_152 FAGEN_T_144 ",%72,%73,%74,%75"
#define FAGEN_T_160 FAGEN_T_152 ",%76,%77,%78,%79"
#define FAGEN_T_168 FAGEN_T_160 ",%80,%81,%82,%83"
#define FAGEN_T_176 FAGEN_T_168 ",%84,%85,%86,%87"
#define FAGEN_T_184 FAGEN_T_176 ",%88,%89,%90,%91"
#define FAGEN_T_192 FAGEN_T_184 ",%92,%93,%94,%95"
#define FAGEN_T_200 FAGEN_T_192 ",%96,%97,%98,%99"
#define FAGEN_T_208 FAGEN_T_200 ",%100,%101,%102,%103"
#define FAGEN_T_216 FAGEN_T_208 ",%104,%105,%106,%107"
#define FAGEN_T_224 FAGEN_T_216 ",%108,%109,%110,%111"
#define FAGEN_T_232 FAGEN_T_224 ",%112,%113,%114,%115"
#define FAGEN_T_240 FAGEN_T_232 ",%116,%117,%118,%119"
#define FAGEN_T_248 FAGEN_T_240 ",%120,%121,%122,%123"
#define FAGEN_T_256 FAGEN_T_248 ",%124,%125,%126,%127"

// Both forms for one N. i0.. are the numbers of the operands behind the accumulator's.
#define FAGEN_WGMMA(N, i0, i1, i2, i3, i4, i5, i6, i7, i8, i9)                                               \
  template <typename A, typename B, typename Tail>                                                           \
  __device__ __forceinline__ void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, uint32_t accumulate) { \
    asm volatile(                                                                                            \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2 ", 0;\n"                                                    \
        "wgmma.mma_async.sync.aligned.m64n" #N "%" #i3 ".f32%" #i4 "%" #i5 " {" FAGEN_T_##N "}, "            \
        "%" #i0 ", %" #i1 ", p, %" #i6 ";\n}"                                                                \
        : FAGEN_D_##N                                                                                        \
        : "l"(a), "l"(b), "r"(accumulate), "C"(WgmmaDepth<sizeof(A)>::kText), "C"(TypeName<A>::kText),       \
          "C"(TypeName<B>::kText), "C"(Tail::kText));                                                        \
  }                                                                                                          \
  template <typename A, typename B, typename Tail>                                                           \
  __device__ __forceinline__ void wgmma_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,            \
                                           uint32_t accumulate) {                                            \
    asm volatile(                                                                                            \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #i5 ", 0;\n"                                                    \
        "wgmma.mma_async.sync.aligned.m64n" #N "%" #i6 ".f32%" #i7 "%" #i8 " {" FAGEN_T_##N "}, "            \
        "{%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4 ", p, %" #i9 ";\n}"                                   \
        : FAGEN_D_##N                                                                                        \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                               \
          "C"(WgmmaDepth<sizeof(A)>::kText), "C"(TypeName<A>::kText), "C"(TypeName<B>::kText),               \
          "C"(Tail::kText));                                                                                 \
  }

FAGEN_WGMMA(8, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
FAGEN_WGMMA(16, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
FAGEN_WGMMA(24, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
FAGEN_WGMMA(32, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
FAGEN_WGMMA(40, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29)
FAGEN_WGMMA(48, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)
FAGEN_WGMMA(56, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37)
FAGEN_WGMMA(64, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41)
FAGEN_WGMMA(72, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45)
FAGEN_WGMMA(80, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49)
FAGEN_WGMMA(88, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53)
FAGEN_WGMMA(96, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57)
FAGEN_WGMMA(104, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61)
FAGEN_WGMMA(112, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65)
FAGEN_WGMMA(120, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69)
FAGEN_WGMMA(128, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73)
FAGEN_WGMMA(136, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77)
FAGEN_WGMMA(144, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81)
FAGEN_WGMMA(152, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85)
FAGEN_WGMMA(160, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89)
FAGEN_WGMMA(168, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93)
FAGEN_WGMMA(176, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97)
FAGEN_WGMMA(184, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101)
FAGEN_WGMMA(192, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105)
FAGEN_WGMMA(200, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109)
FAGEN_WGMMA(208, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113)
FAGEN_WGMMA(216, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117)
FAGEN_WGMMA(224, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121)
FAGEN_WGMMA(232, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125)
FAGEN_WGMMA(240, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129)
FAGEN_WGMMA(248, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133)
FAGEN_WGMMA(256, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137)

#undef FAGEN_WGMMA
#undef FAGEN_T_8
#undef FAGEN_T_16
#undef FAGEN_T_24
#undef FAGEN_T_32
#undef FAGEN_T_40
#undef FAGEN_T_48
#undef FAGEN_T_56
#undef FAGEN_T_64
#undef FAGEN_T_72
#undef FAGEN_T_80
#undef FAGEN_T_88
#undef FAGEN_T_96
#undef FAGEN_T_104
#undef FAGEN_T_112
#undef FAGEN_T_120
#undef FAGEN_T_128
#undef FAGEN_T_136
#undef FAGEN_T_144
#undef FAGEN_T_152
#undef FAGEN_T_160
#undef FAGEN_T_168
#undef FAGEN_T_176
#undef FAGEN_T_184
#undef FAGEN_T_192
#undef FAGEN_T_200
#undef FAGEN_T_208
#undef FAGEN_T_216
#undef FAGEN_T_224
#undef FAGEN_T_232
#undef FAGEN_T_240
#undef FAGEN_T_248
#undef FAGEN_T_256
#undef FAGEN_D_8
#undef FAGEN_D_16
#undef FAGEN_D_24
#undef FAGEN_D_32
#undef FAGEN_D_40
#undef FAGEN_D_48
#undef FAGEN_D_56
#undef FAGEN_D_64
#undef FAGEN_D_72
#undef FAGEN_D_80
#undef FAGEN_D_88
#undef FAGEN_D_96
#undef FAGEN_D_104
#undef FAGEN_D_112
#undef FAGEN_D_120
#undef FAGEN_D_128
#undef FAGEN_D_136
#undef FAGEN_D_144
#undef FAGEN_D_152
#undef FAGEN_D_160
#undef FAGEN_D_168
#undef FAGEN_D_176
#undef FAGEN_D_184
#undef FAGEN_D_192
#undef FAGEN_D_200
#undef FAGEN_D_208
#undef FAGEN_D_216
#undef FAGEN_D_224
#undef FAGEN_D_232
#undef FAGEN_D_240
#undef FAGEN_D_248
#undef FAGEN_D_256
#undef FAGEN_D
// clang-format on

}  // namespace detail

// N is twice the number of accumulator registers. Without `accumulate`, D's old values do not count.
template <typename A, typename B, Major kA = Major::kK, Major kB = Major::kK, int kRegisters>
__device__ __forceinline__ void wgmma(float (&d)[kRegisters], uint64_t a, uint64_t b, bool accumulate) {
  if constexpr (sizeof(A) == 1) {
    static_assert(kA == Major::kK && kB == Major::kK, "8-bit operands are K-major");
    detail::wgmma_ss<A, B, detail::WgmmaTail<> >(d, a, b, accumulate);
  } else {
    detail::wgmma_ss<A, B, detail::WgmmaTail<kA, kB> >(d, a, b, accumulate);
  }
}

// A in registers.
template <typename A, typename B, Major kB = Major::kK, int kRegisters>
__device__ __forceinline__ void wgmma(float (&d)[kRegisters], const uint32_t (&a)[4], uint64_t b,
                                      bool accumulate) {
  if constexpr (sizeof(A) == 1) {
    static_assert(kB == Major::kK, "8-bit operands are K-major");
    detail::wgmma_rs<A, B, detail::WgmmaTail<> >(d, a, b, accumulate);
  } else {
    detail::wgmma_rs<A, B, detail::WgmmaTail<kB> >(d, a, b, accumulate);
  }
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
