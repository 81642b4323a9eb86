struct P {
  u64 p[3];
  u64 rows, width, parts, part;
  u64 n[1]; i64 s[3][1];
};
typedef u32 Ix;
extern "C" __global__ void __launch_bounds__(256) k(P p) {
  const u32 lane = threadIdx.x % 32;
  const Ix group = ((Ix)blockIdx.x * 256 + threadIdx.x) / 32;
  struct __align__(16) A0 { BF16 e[8]; };
  struct __align__(16) A1 { F32 e[8]; };
  struct __align__(16) A2 { BF16 e[8]; };
  const Ix row = group;
  if (row >= p.rows) return;
  {
    i64 b0 = 0;
    i64 b1 = 0;
    i64 b2 = 0;
    b0 = (i64)row * p.s[0][0];
    b1 = (i64)row * p.s[1][0];
    b2 = (i64)row * p.s[2][0];
  A0 a0[3];
  A1 a1[3];
#pragma unroll
  for (int j = 0; j < 3; j++) {
  const u32 c = (j * 32 + lane) * 8;
  if (c < (u32)p.width) {
    a0[j] = *(const A0*)((const BF16*)p.p[0] + b0 + c);
    a1[j] = *(const A1*)((const F32*)p.p[1] + b1 + c);
  } }
  const float n3 = 0; float r3 = n3;
#pragma unroll
  for (int j = 0; j < 3; j++) {
  const u32 c = (j * 32 + lane) * 8;
  if (c < (u32)p.width) {
#pragma unroll
    for (int e = 0; e < 8; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x0 = a0[j].e[e];
    const float v0 = load(x0);
    const float v2 = Cast<F32>::of(v0);
    r3 = Sum::of(r3, (float)v2);
  } } }
  const float v3 = over_row<Sum, 32>(r3, n3);
#pragma unroll
  for (int j = 0; j < 3; j++) {
  const u32 c = (j * 32 + lane) * 8;
  if (c < (u32)p.width) {
    A2 y2;
#pragma unroll
    for (int e = 0; e < 8; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x0 = a0[j].e[e];
    const F32 x1 = a1[j].e[e];
    const float v0 = load(x0);
    const float v1 = load(x1);
    const float v2 = Cast<F32>::of(v0);
    const float v4 = b_sub(v2, v3);
    const float v5 = b_mul(v4, v1);
    const float v6 = Cast<BF16>::of(v5);
    put(y2.e[e], v6);
    }
    *(A2*)((BF16*)p.p[2] + b2 + c) = y2;
  } }
  }
}
