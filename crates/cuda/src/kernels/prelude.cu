// What every kernel starts with: types, conversions, functions of one and two elements.
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

// Functions of one element.
#define FLOATS(body) body(float) body(double)
#define U1(T) \
  FN T u_neg(T x) { return -x; } \
  FN T u_sign(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : x; } \
  FN T u_not(T x) { return x == 0 ? (T)1 : (T)0; } \
  FN T u_square(T x) { return x * x; } \
  FN T u_recip(T x) { return (T)1 / x; } \
  FN T u_relu(T x) { return x <= 0 ? (T)0 : x; } \
  FN T u_stop_gradient(T x) { return x; }
FLOATS(U1)
#define BOTH(name, single, twice) FN float u_##name(float x) { return single(x); } FN double u_##name(double x) { return twice(x); }
BOTH(abs, fabsf, fabs) BOTH(floor, floorf, floor) BOTH(ceil, ceilf, ceil) BOTH(round, rintf, rint) BOTH(trunc, truncf, trunc)
BOTH(sqrt, sqrtf, sqrt) BOTH(exp, expf, exp) BOTH(exp2, exp2f, exp2) BOTH(expm1, expm1f, expm1)
BOTH(log, logf, log) BOTH(log2, log2f, log2) BOTH(log10, log10f, log10) BOTH(log1p, log1pf, log1p)
BOTH(sin, sinf, sin) BOTH(cos, cosf, cos) BOTH(tan, tanf, tan) BOTH(asin, asinf, asin) BOTH(acos, acosf, acos) BOTH(atan, atanf, atan)
BOTH(sinh, sinhf, sinh) BOTH(cosh, coshf, cosh) BOTH(tanh, tanhf, tanh) BOTH(asinh, asinhf, asinh) BOTH(acosh, acoshf, acosh) BOTH(atanh, atanhf, atanh)
BOTH(erf, erff, erf) BOTH(erfc, erfcf, erfc)
FN float u_rsqrt(float x) { return 1.f / sqrtf(x); }
FN double u_rsqrt(double x) { return 1.0 / sqrt(x); }
FN float bounded(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
FN double bounded(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
#define U2(T) \
  FN T u_sigmoid(T x) { T e = u_exp(-u_abs(x)), r = (T)1 / ((T)1 + e); return x < 0 ? e * r : r; } \
  FN T u_sigmoids(T x, T& of_negative) { \
    T e = u_exp(-u_abs(x)), r = (T)1 / ((T)1 + e), l = e * r; \
    of_negative = x > 0 ? l : r; return x < 0 ? l : r; } \
  FN T u_silu(T x) { return bounded(x, (T)-1000, (T)INF) * u_sigmoid(x); } \
  FN T u_phi(T x) { return (T)0.5 * u_erfc(x * (T)-0.70710678118654752440); } \
  FN T u_gelu(T x) { return bounded(x, (T)-100, (T)INF) * u_phi(x); } \
  FN T gelu_inner(T x) { return x * ((T)0.071354816272600689 * (x * x) + (T)1.595769121605730711759784); } \
  FN T u_gelu_tanh(T x) { return bounded(x, (T)-1000, (T)INF) * u_sigmoid(gelu_inner(x)); }
FLOATS(U2)

// dy · f', from the value that the row of the function saves.
#define V(T) \
  FN T v_abs(T x, T dy) { return x > 0 ? dy : x < 0 ? -dy : x * dy; } \
  FN T v_square(T x, T dy) { return (T)2 * x * dy; } \
  FN T v_sqrt(T y, T dy) { return (T)0.5 * dy / y; } \
  FN T v_rsqrt(T y, T dy) { return (T)-0.5 * dy * (y * y * y); } \
  FN T v_recip(T y, T dy) { return -dy * (y * y); } \
  FN T v_log(T x, T dy) { return dy / x; } \
  FN T v_sin(T x, T dy) { return dy * u_cos(x); } \
  FN T v_cos(T x, T dy) { return -dy * u_sin(x); } \
  FN T v_tanh(T y, T dy) { return dy * ((T)1 - y * y); } \
  FN T v_sigmoid(T y, T dy) { return dy * (y * ((T)1 - y)); } \
  FN T v_relu(T y, T dy) { return y <= 0 ? (T)0 : dy; } \
  FN T v_erf(T x, T dy) { return dy * ((T)1.12837916709551257390 * u_exp(-x * x)); } \
  FN T v_gelu(T x, T dy) { T h = bounded(x, (T)-100, (T)100); return dy * (h * (T)0.3989422804014327 * u_exp((T)-0.5 * x * x) + u_phi(x)); } \
  FN T v_gelu_tanh(T x, T dy) { \
    x = bounded(x, (T)-100, (T)100); \
    T u = gelu_inner(x), du = (T)(3 * 0.071354816272600689) * (x * x) + (T)1.595769121605730711759784; \
    T c, s = u_sigmoids(u, c); return dy * (x * du * s * c + s); } \
  FN T v_silu(T x, T dy) { x = bounded(x, (T)-1000, (T)1000); T c, s = u_sigmoids(x, c); return dy * (s * (x * c + (T)1)); }
FLOATS(V)

// The same for results that are rounded to 8 or 11 bits: the device's own exponential and quotient,
// which are off by 2^-22 of a result, or 2^-17 where |x| is near 88. The others are written in half
// the instructions, where a kernel would wait for these rather than for memory.
FN float l_exp(float x) { return __expf(x); }
FN void l_sigmoids(float x, float& s, float& c) {
  float e = __expf(-fabsf(x)), r = __fdividef(1.f, 1.f + e), p = e * r; s = x < 0 ? p : r; c = x > 0 ? p : r;
}
FN float l_sigmoid(float x) { float s, c; l_sigmoids(x, s, c); return s; }
FN float l_silu(float x) { return bounded(x, -1000.f, (float)INF) * l_sigmoid(x); }
FN float l_gelu_tanh(float x) { return bounded(x, -1000.f, (float)INF) * l_sigmoid(gelu_inner(x)); }
FN float lv_gelu_tanh(float x, float dy) {
  x = bounded(x, -100.f, 100.f);
  float u = gelu_inner(x), du = (float)(3 * 0.071354816272600689) * (x * x) + (float)1.595769121605730711759784;
  float s, c; l_sigmoids(u, s, c); return dy * (x * du * s * c + s);
}
FN float lv_silu(float x, float dy) {
  x = bounded(x, -1000.f, 1000.f); float s, c; l_sigmoids(x, s, c); return dy * (s * (x * c + 1.f));
}

// Functions of two elements.
FN float remainder_of(float a, float b) { return fmodf(a, b); }
FN double remainder_of(double a, double b) { return fmod(a, b); }
FN float with_sign(float a, float b) { return copysignf(a, b); }
FN double with_sign(double a, double b) { return copysign(a, b); }
FN float b_pow(float a, float b) { return powf(a, b); }
FN double b_pow(double a, double b) { return pow(a, b); }
FN float b_atan2(float a, float b) { return atan2f(a, b); }
FN double b_atan2(double a, double b) { return atan2(a, b); }
#define B(T) \
  FN T b_add(T a, T b) { return a + b; } \
  FN T b_sub(T a, T b) { return a - b; } \
  FN T b_mul(T a, T b) { return a * b; } \
  FN T b_div(T a, T b) { return a / b; } \
  FN T b_fmod(T a, T b) { return remainder_of(a, b); } \
  FN T b_remainder(T a, T b) { T r = remainder_of(a, b); return r == 0 ? with_sign(r, b) : (r < 0) != (b < 0) ? r + b : r; } \
  FN T b_floor_div(T a, T b) { \
    T r = remainder_of(a, b), q = (a - r) / b; \
    q = r != 0 && (r < 0) != (b < 0) ? q - (T)1 : q; \
    T down = u_floor(q); q = q - down > (T)0.5 ? down + (T)1 : down; \
    return b == 0 ? a / b : q == 0 ? with_sign((T)0, a / b) : q; } \
  FN T b_copysign(T a, T b) { return with_sign(a, b); } \
  FN T b_maximum(T a, T b) { return a != a || a > b ? a : b; } \
  FN T b_minimum(T a, T b) { return a != a || a < b ? a : b; } \
  FN T b_and(T a, T b) { return a != 0 && b != 0 ? (T)1 : (T)0; } \
  FN T b_or(T a, T b) { return a != 0 || b != 0 ? (T)1 : (T)0; } \
  FN T b_xor(T a, T b) { return (a != 0) != (b != 0) ? (T)1 : (T)0; }
FLOATS(B)

// Integers wrap; dividing by zero gives zero.
FN i64 u_same(i64 x) { return x; }
FN i64 u_neg(i64 x) { return (i64)(0ull - (u64)x); }
FN i64 u_abs(i64 x) { return x < 0 ? u_neg(x) : x; }
FN i64 u_sign(i64 x) { return (x > 0) - (x < 0); }
FN i64 u_not(i64 x) { return ~x; }
FN i64 u_square(i64 x) { return (i64)((u64)x * (u64)x); }
FN i64 u_relu(i64 x) { return x < 0 ? 0 : x; }
FN i64 b_add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
FN i64 b_sub(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
FN i64 b_mul(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
FN i64 b_div(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? u_neg(a) : a / b; }
FN i64 b_fmod(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
FN i64 b_remainder(i64 a, i64 b) { i64 r = b_fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
FN i64 b_floor_div(i64 a, i64 b) { i64 r = b_fmod(a, b), q = b_div(a, b); return b != 0 && r != 0 && (r < 0) != (b < 0) ? q - 1 : q; }
FN i64 b_pow(i64 a, i64 b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? 1 - 2 * (b & 1) : 0;
  u64 result = 1, base = (u64)a;
  for (u64 left = (u64)b; left > 0; left >>= 1) { if (left & 1) result *= base; base *= base; }
  return (i64)result;
}
FN i64 b_maximum(i64 a, i64 b) { return a > b ? a : b; }
FN i64 b_minimum(i64 a, i64 b) { return a < b ? a : b; }
FN i64 b_and(i64 a, i64 b) { return a & b; }
FN i64 b_or(i64 a, i64 b) { return a | b; }
FN i64 b_xor(i64 a, i64 b) { return a ^ b; }
FN i64 b_shift_left(i64 a, i64 b) { return (u64)b > 63 ? 0 : (i64)((u64)a << b); }
FN i64 b_shift_right(i64 a, i64 b) { return a >> ((u64)b > 63 ? 63 : b); }
FN i64 b_gcd(i64 a, i64 b) {
  u64 x = (u64)u_abs(a), y = (u64)u_abs(b);
  while (y != 0) { u64 r = x % y; x = y; y = r; }
  return (i64)x;
}

// Sums over the threads of a row: G of them, in an order that depends on G alone.
struct Sum { template <class C> FN static C of(C a, C b) { return b_add(a, b); } };
struct Prod { template <class C> FN static C of(C a, C b) { return b_mul(a, b); } };
struct Max {
  template <class C> FN static C of(C a, C b) { return b_maximum(a, b); }
#if __CUDA_ARCH__ >= 800
  FN static float of(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
#endif
};
struct Min {
  template <class C> FN static C of(C a, C b) { return b_minimum(a, b); }
#if __CUDA_ARCH__ >= 800
  FN static float of(float a, float b) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
#endif
};
template <class K, int G, class C> FN C over_row(C x, C none) {
  if (G == 1) return x;
#pragma unroll
  for (int o = (G < 32 ? G : 32) / 2; o; o >>= 1) x = K::of(x, __shfl_xor_sync(~0u, x, o));
  if (G > 32) {
    __shared__ C part[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
    if (lane == 0) part[warp] = x;
    __syncthreads();
    x = lane < G / 32 ? part[lane] : none;
#pragma unroll
    for (int o = 16; o; o >>= 1) x = K::of(x, __shfl_xor_sync(~0u, x, o));
  }
  return x;
}

// Where a kernel reports an index that it rejects, in memory of the host: the number of the call,
// the length of the axis, and of its bad indices the one at the smallest position. `high` and `low`
// hold that position above a half of the index, so the least of them is the same index in whatever
// order threads come. `stop` is a word of the device that updates read, `any` a word of the host.
struct Fault { u32 call; u32 ready; i64 bound; u64 high; u64 low; u32* stop; u32* any; };
FN void lower(u64* to, u64 x) {
  u64 seen = *(volatile u64*)to;
  while (x < seen) { u64 before = atomicCAS_system(to, seen, x); if (before == seen) return; seen = before; }
}
FN void report(Fault* to, u32 call, u64 position, i64 index, i64 bound) {
  u32 first = *(volatile u32*)&to->call;
  if (first == 0) first = atomicCAS_system(&to->call, 0u, call);
  if (first != 0 && first != call) return;
  *(volatile u32*)to->stop = 1;
  to->bound = bound;
  u64 at = (position < 0xffffffffull ? position : 0xffffffffull) << 32;
  lower(&to->high, at | ((u64)index >> 32));
  lower(&to->low, at | ((u64)index & 0xffffffffull));
  __threadfence_system();
  *(volatile u32*)&to->ready = 1;
  __threadfence_system();
  *(volatile u32*)to->any = 1;
}
