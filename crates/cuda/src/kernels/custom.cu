// What precedes CUDA C of a user's: the narrow floats, which convert from and to `float`. Headers
// of CUDA are not needed. The names T0, T1, … of the operands' elements and R0, R1, … of the
// results' follow, then the user's text.

namespace pullback {
struct bf16 {
  unsigned short bits;
  bf16() = default;
  __device__ bf16(float x) {
    unsigned int b = __float_as_uint(x);
    bits = x != x ? (unsigned short)((b >> 16) | 0x40) : (unsigned short)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
  }
  __device__ operator float() const { return __uint_as_float((unsigned int)bits << 16); }
};
struct f16 {
  unsigned short bits;
  f16() = default;
  __device__ f16(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ operator float() const { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }
};
}
