struct P {
  u64 p[6];
  u64 rows, width, parts, part;
  u64 n[1]; i64 s[4][1];
};
typedef u32 Ix;
extern "C" __global__ void __launch_bounds__(256, 2) k(P p) {
  const u32 lane = threadIdx.x;
  const Ix group = blockIdx.x;
  float s26[2][8] = {};
  float s1[2][8] = {};
  struct __align__(16) A0 { BF16 e[8]; };
  struct __align__(16) A1 { BF16 e[8]; };
  struct __align__(16) A2 { F32 e[8]; };
  struct __align__(16) A3 { BF16 e[8]; };
    i64 b0 = 0;
    i64 b1 = 0;
    i64 b2 = 0;
    i64 b3 = 0;
    b0 = (i64)group * p.s[0][0];
    b1 = (i64)group * p.s[1][0];
    b2 = (i64)group * p.s[2][0];
    b3 = (i64)group * p.s[3][0];
  A2 a2[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
    a2[j] = *(const A2*)((const F32*)p.p[2] + b2 + c);
  } }
  A0 a0[2];
  A1 a1[2];
  if (group < p.rows) {
#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
    a0[j] = *(const A0*)((const BF16*)p.p[0] + b0 + c);
    a1[j] = *(const A1*)((const BF16*)p.p[1] + b1 + c);
  } }
  }
  u32 turn = 0;
#pragma unroll 1
  for (Ix row = group; row < p.rows;) {
  const Ix next = row + (Ix)gridDim.x * 1;
    i64 g0 = 0;
    i64 g1 = 0;
    i64 g2 = 0;
    i64 g3 = 0;
    g0 = (i64)next * p.s[0][0];
    g1 = (i64)next * p.s[1][0];
    g2 = (i64)next * p.s[2][0];
    g3 = (i64)next * p.s[3][0];
  A0 m0[2];
  A1 m1[2];
  if (next < p.rows) {
#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
    m0[j] = *(const A0*)((const BF16*)p.p[0] + g0 + c);
    m1[j] = *(const A1*)((const BF16*)p.p[1] + g1 + c);
  } }
  }
    const float v5 = Cast<F32>::of(__longlong_as_double(0x3f30000000000000LL));
    const float v11 = Cast<F32>::of(__longlong_as_double(0x3ee4f8b588e368f1LL));
  const float n4 = 0; float r4 = n4;
  const float n17 = 0; float r17 = n17;
#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
#pragma unroll
    for (int e = 0; e < 8; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x0 = a0[j].e[e];
    const BF16 x1 = a1[j].e[e];
    const F32 x2 = a2[j].e[e];
    const float v0 = load(x0);
    const float v1 = Cast<F32>::of(v0);
    const float v2 = load(x1);
    const float v3 = Cast<F32>::of(v2);
    const float v15 = load(x2);
    const float v16 = b_mul(v1, v15);
    r4 = Sum::of(r4, (float)v3);
    r17 = Sum::of(r17, (float)v16);
  } } }
  __shared__ float part4[2][8];
  r4 = over_row<Sum, 32>(r4, n4);
  if (lane % 32 == 0) part4[turn][lane / 32] = r4;
  __shared__ float part17[2][8];
  r17 = over_row<Sum, 32>(r17, n17);
  if (lane % 32 == 0) part17[turn][lane / 32] = r17;
  __syncthreads();
  float q4 = part4[turn][0];
#pragma unroll
  for (int w = 1; w < 8; w++) q4 = Sum::of(q4, part4[turn][w]);
  const float v4 = q4;
  float q17 = part17[turn][0];
#pragma unroll
  for (int w = 1; w < 8; w++) q17 = Sum::of(q17, part17[turn][w]);
  const float v17 = q17;
    const float v6 = b_mul(v4, v5);
    const float v18 = b_mul(v17, v5);
  const float n9 = 0; float r9 = n9;
#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
#pragma unroll
    for (int e = 0; e < 8; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x1 = a1[j].e[e];
    const float v2 = load(x1);
    const float v3 = Cast<F32>::of(v2);
    const float v7 = b_sub(v3, v6);
    const float v8 = u_square(v7);
    r9 = Sum::of(r9, (float)v8);
  } } }
  __shared__ float part9[2][8];
  r9 = over_row<Sum, 32>(r9, n9);
  if (lane % 32 == 0) part9[turn][lane / 32] = r9;
  __syncthreads();
  float q9 = part9[turn][0];
#pragma unroll
  for (int w = 1; w < 8; w++) q9 = Sum::of(q9, part9[turn][w]);
  const float v9 = q9;
    const float v10 = b_mul(v9, v5);
    const float v12 = b_add(v10, v11);
    const float v13 = u_rsqrt(v12);
  const float n20 = 0; float r20 = n20;
#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
#pragma unroll
    for (int e = 0; e < 8; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x0 = a0[j].e[e];
    const BF16 x1 = a1[j].e[e];
    const F32 x2 = a2[j].e[e];
    const float v0 = load(x0);
    const float v1 = Cast<F32>::of(v0);
    const float v2 = load(x1);
    const float v3 = Cast<F32>::of(v2);
    const float v7 = b_sub(v3, v6);
    const float v14 = b_mul(v7, v13);
    const float v15 = load(x2);
    const float v16 = b_mul(v1, v15);
    const float v19 = b_mul(v16, v14);
    r20 = Sum::of(r20, (float)v19);
  } } }
  __shared__ float part20[2][8];
  r20 = over_row<Sum, 32>(r20, n20);
  if (lane % 32 == 0) part20[turn][lane / 32] = r20;
  __syncthreads();
  float q20 = part20[turn][0];
#pragma unroll
  for (int w = 1; w < 8; w++) q20 = Sum::of(q20, part20[turn][w]);
  const float v20 = q20;
    const float v21 = b_mul(v20, v5);
#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
    A3 y3;
#pragma unroll
    for (int e = 0; e < 8; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x0 = a0[j].e[e];
    const BF16 x1 = a1[j].e[e];
    const F32 x2 = a2[j].e[e];
    const float v0 = load(x0);
    const float v1 = Cast<F32>::of(v0);
    const float v2 = load(x1);
    const float v3 = Cast<F32>::of(v2);
    const float v7 = b_sub(v3, v6);
    const float v14 = b_mul(v7, v13);
    const float v15 = load(x2);
    const float v16 = b_mul(v1, v15);
    const float v22 = b_mul(v14, v21);
    const float v23 = b_sub(v16, v18);
    const float v24 = b_sub(v23, v22);
    const float v25 = b_mul(v24, v13);
    const float v26 = b_mul(v1, v14);
    const float v27 = Cast<BF16>::of(v25);
    put(y3.e[e], v27);
    s26[j][e] += v26;
    s1[j][e] += v1;
    }
    *(A3*)((BF16*)p.p[3] + b3 + c) = y3;
  } }
  row = next; turn ^= 1;
  b0 = g0;
  b1 = g1;
  b2 = g2;
  b3 = g3;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    a0[j] = m0[j];
    a1[j] = m1[j];
  }
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
#pragma unroll
    for (int e = 0; e < 8; e++) {
    ((float*)p.p[4])[group * (Ix)p.width + c + e] = s26[j][e];
  } } }

#pragma unroll
  for (int j = 0; j < 2; j++) {
  const u32 c = (j * 256 + lane) * 8;
  {
#pragma unroll
    for (int e = 0; e < 8; e++) {
    ((float*)p.p[5])[group * (Ix)p.width + c + e] = s1[j][e];
  } } }

}
