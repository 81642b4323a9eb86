struct P {
  u64 p[3];
  u64 rows, width, parts, part;
};
typedef u32 Ix;
extern "C" __global__ void __launch_bounds__(256) k(P p) {
  const i64 key1[2] = {((const i64*)p.p[1])[0], ((const i64*)p.p[1])[1]};
  const Ix first = ((Ix)blockIdx.x * 256 + threadIdx.x) * 4;
  if (first >= p.rows) return;
  if (first + 4 <= p.rows) {
    struct __align__(16) A0 { F32 e[4]; } a0;
    a0 = *(const A0*)((const F32*)p.p[0] + first);
    struct __align__(16) A2 { F32 e[4]; } a2;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const Ix at = first + j;
      const F32 x0 = a0.e[j];
    const float v0 = load(x0);
    const float v1 = draw_uniform32<24>(key1, at);
    const float v2 = Cast<F32>::of(__longlong_as_double(0x3feccccccccccccdLL));
    const i64 v3 = (i64)(v1 < v2);
    const float v4 = Cast<F32>::of(__longlong_as_double(0x0000000000000000LL));
    const float v5 = (v3 != 0 ? v0 : v4);
      put(a2.e[j], v5);
    }
    *(A2*)((F32*)p.p[2] + first) = a2;
    return;
  }
  for (Ix at = first; at < first + 4 && at < p.rows; at++) {
    const F32 x0 = ((const F32*)p.p[0])[at];
    const float v0 = load(x0);
    const float v1 = draw_uniform32<24>(key1, at);
    const float v2 = Cast<F32>::of(__longlong_as_double(0x3feccccccccccccdLL));
    const i64 v3 = (i64)(v1 < v2);
    const float v4 = Cast<F32>::of(__longlong_as_double(0x0000000000000000LL));
    const float v5 = (v3 != 0 ? v0 : v4);
    put(((F32*)p.p[2])[at], v5);
  }
}
