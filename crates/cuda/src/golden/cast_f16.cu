struct P {
  u64 p[2];
  u64 rows, width, parts, part;
};
typedef u32 Ix;
extern "C" __global__ void __launch_bounds__(256) k(P p) {
  const Ix first = ((Ix)blockIdx.x * 256 + threadIdx.x) * 4;
  if (first >= p.rows) return;
  if (first + 4 <= p.rows) {
    struct __align__(16) A0 { F32 e[4]; } a0;
    a0 = *(const A0*)((const F32*)p.p[0] + first);
    struct __align__(8) A1 { F16 e[4]; } a1;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const Ix at = first + j;
      const F32 x0 = a0.e[j];
    const float v0 = load(x0);
    const float v1 = Cast<F16>::of(v0);
      put(a1.e[j], v1);
    }
    *(A1*)((F16*)p.p[1] + first) = a1;
    return;
  }
  for (Ix at = first; at < first + 4 && at < p.rows; at++) {
    const F32 x0 = ((const F32*)p.p[0])[at];
    const float v0 = load(x0);
    const float v1 = Cast<F16>::of(v0);
    put(((F16*)p.p[1])[at], v1);
  }
}
