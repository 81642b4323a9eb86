// What every kernel starts with: types and conversions. After it come the functions of one and two
// floats, from their rows (`functions.rs`), then `integers.cu` and `threads.cu`.
//
// Headers of CUDA are not needed: bf16 and f16 are bits. A value is computed in its compute type
// (`float` for bf16, f16 and f32, `double`, `long long` for all integers and bool) and rounded to
// its dtype after each instruction, as on the CPU.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define FN __device__ __forceinline__
#define INF __longlong_as_double(0x7ff0000000000000LL)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000LL)

// Elements in memory.
struct F64 { double v; }; struct F32 { float v; }; struct BF16 { u16 v; }; struct F16 { u16 v; };
struct I64 { i64 v; }; struct I32 { int v; }; struct U8 { u8 v; }; struct Bool { u8 v; };

FN float from_bf16(u16 b) { return __uint_as_float((u32)b << 16); }
FN u16 to_bf16(float x) {
#if __CUDA_ARCH__ >= 800
  u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r;
#else
  u32 bits = __float_as_uint(x);
  return x != x ? (u16)((bits >> 16) | 0x40) : (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
#endif
}
FN float from_f16(u16 h) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h)); return r; }
FN u16 to_f16(float x) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }

FN double load(F64 x) { return x.v; }
FN float load(F32 x) { return x.v; }
FN float load(BF16 x) { return from_bf16(x.v); }
FN float load(F16 x) { return from_f16(x.v); }
FN i64 load(I64 x) { return x.v; }
FN i64 load(I32 x) { return x.v; }
FN i64 load(U8 x) { return x.v; }
FN i64 load(Bool x) { return x.v; }
FN void store(F64& to, double x) { to.v = x; }
FN void store(F32& to, float x) { to.v = x; }
FN void store(BF16& to, float x) { to.v = to_bf16(x); }
FN void store(F16& to, float x) { to.v = to_f16(x); }
FN void store(I64& to, i64 x) { to.v = x; }
FN void store(I32& to, i64 x) { to.v = (int)x; }
FN void store(U8& to, i64 x) { to.v = (u8)x; }
FN void store(Bool& to, i64 x) { to.v = x != 0; }
// A value that is rounded to the dtype already.
template <class T, class C> FN void put(T& to, C x) { store(to, x); }
FN void put(BF16& to, float x) { to.v = (u16)(__float_as_uint(x) >> 16); }

// Rounded to a dtype, in the compute type.
template <class T, class C> FN C rounded(C x) { T t; store(t, x); return load(t); }

// Casts: floats to the nearest value, integers truncated and clamped, bool whether not zero.
FN i64 whole(double x) {
  return x != x ? 0 : x >= 9223372036854775807.0 ? 0x7fffffffffffffffLL
       : x <= -9223372036854775808.0 ? (i64)0x8000000000000000LL : (i64)x;
}
FN i64 whole(float x) { return whole((double)x); }
FN i64 whole(i64 x) { return x; }
// To odd: rounding the result to a narrower type rounds x once.
FN float to_odd(double x) {
  float y = (float)x; double back = y; u32 bits = __float_as_uint(y);
  u32 cut = fabs(back) > fabs(x) ? bits - 1 : bits;
  return __uint_as_float(back == x || x != x ? bits : cut | 1);
}
template <class T> struct Cast;
template <> struct Cast<F64> { template <class C> FN static double of(C x) { return (double)x; } };
template <> struct Cast<F32> { template <class C> FN static float of(C x) { return (float)x; } };
template <> struct Cast<BF16> {
  FN static float of(double x) { return rounded<BF16>(to_odd(x)); }
  FN static float of(float x) { return rounded<BF16>(x); }
  FN static float of(i64 x) { return rounded<BF16>((float)x); }
};
template <> struct Cast<F16> {
  FN static float of(double x) { return rounded<F16>(to_odd(x)); }
  FN static float of(float x) { return rounded<F16>(x); }
  FN static float of(i64 x) { return rounded<F16>((float)x); }
};
template <> struct Cast<I64> { template <class C> FN static i64 of(C x) { return whole(x); } };
template <> struct Cast<I32> {
  template <class C> FN static i64 of(C x) { i64 w = whole(x); return w < -2147483648LL ? -2147483648LL : w > 2147483647LL ? 2147483647LL : w; }
};
template <> struct Cast<U8> {
  template <class C> FN static i64 of(C x) { i64 w = whole(x); return w < 0 ? 0 : w > 255 ? 255 : w; }
};
template <> struct Cast<Bool> { template <class C> FN static i64 of(C x) { return x != (C)0; } };

// What the rows of functions call.
FN float bounded(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
FN double bounded(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
FN float u_inverse(float x) { return 1.f / x; }
FN double u_inverse(double x) { return 1.0 / x; }
FN float remainder_of(float a, float b) { return fmodf(a, b); }
FN double remainder_of(double a, double b) { return fmod(a, b); }
FN float with_sign(float a, float b) { return copysignf(a, b); }
FN double with_sign(double a, double b) { return copysign(a, b); }
// And those that are quick, for results that are rounded to 8 or 11 bits: the device's own
// exponential and quotient, which are off by 2^-22 of a result, or 2^-17 where |x| is near 88. They
// take half the instructions, where a kernel would wait for these rather than for memory.
FN float l_abs(float x) { return fabsf(x); }
FN float l_inverse(float x) { return __fdividef(1.f, x); }
