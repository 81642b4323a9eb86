struct P {
  u64 p[9];
  u64 rows, width, parts, part;
  u64 n[1]; i64 s[6][1];
};
typedef u32 Ix;
extern "C" __global__ void __launch_bounds__(192, 4) k(P p) {
  const u32 lane = threadIdx.x;
  const Ix group = blockIdx.x;
  float s25[1][4] = {};
  float s1[1][4] = {};
  float s28[1][4] = {};
  struct __align__(8) A0 { BF16 e[4]; };
  struct __align__(16) A1 { F32 e[4]; };
  struct __align__(16) A2 { F32 e[4]; };
  struct __align__(16) A3 { F32 e[4]; };
  struct __align__(16) A4 { F32 e[4]; };
  struct __align__(8) A5 { BF16 e[4]; };
    i64 b0 = 0;
    i64 b1 = 0;
    i64 b2 = 0;
    i64 b3 = 0;
    i64 b4 = 0;
    i64 b5 = 0;
    b0 = (i64)group * p.s[0][0];
    b1 = (i64)group * p.s[1][0];
    b2 = (i64)group * p.s[2][0];
    b3 = (i64)group * p.s[3][0];
    b4 = (i64)group * p.s[4][0];
    b5 = (i64)group * p.s[5][0];
  A2 a2[1];
#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
    a2[j] = *(const A2*)((const F32*)p.p[2] + b2 + c);
  } }
  A0 a0[1];
  A1 a1[1];
  A3 a3[1];
  if (group < p.rows) {
#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
    a0[j] = *(const A0*)((const BF16*)p.p[0] + b0 + c);
    a1[j] = *(const A1*)((const F32*)p.p[1] + b1 + c);
    a3[j] = *(const A3*)((const F32*)p.p[3] + b3 + c);
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
    i64 g4 = 0;
    i64 g5 = 0;
    g0 = (i64)next * p.s[0][0];
    g1 = (i64)next * p.s[1][0];
    g2 = (i64)next * p.s[2][0];
    g3 = (i64)next * p.s[3][0];
    g4 = (i64)next * p.s[4][0];
    g5 = (i64)next * p.s[5][0];
  A0 m0[1];
  A1 m1[1];
  A3 m3[1];
  if (next < p.rows) {
#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
    m0[j] = *(const A0*)((const BF16*)p.p[0] + g0 + c);
    m1[j] = *(const A1*)((const F32*)p.p[1] + g1 + c);
    m3[j] = *(const A3*)((const F32*)p.p[3] + g3 + c);
  } }
  }
    const float v4 = Cast<F32>::of(__longlong_as_double(0x3f55555555555555LL));
    const float v10 = Cast<F32>::of(__longlong_as_double(0x3ee4f8b588e368f1LL));
  const float n3 = 0; float r3 = n3;
  const float n16 = 0; float r16 = n16;
#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
#pragma unroll
    for (int e = 0; e < 4; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x0 = a0[j].e[e];
    const F32 x1 = a1[j].e[e];
    const F32 x2 = a2[j].e[e];
    const float v0 = load(x0);
    const float v1 = Cast<F32>::of(v0);
    const float v2 = load(x1);
    const float v14 = load(x2);
    const float v15 = b_mul(v1, v14);
    r3 = Sum::of(r3, (float)v2);
    r16 = Sum::of(r16, (float)v15);
  } } }
  __shared__ float part3[2][6];
  r3 = over_row<Sum, 32>(r3, n3);
  if (lane % 32 == 0) part3[turn][lane / 32] = r3;
  __shared__ float part16[2][6];
  r16 = over_row<Sum, 32>(r16, n16);
  if (lane % 32 == 0) part16[turn][lane / 32] = r16;
  __syncthreads();
  float q3 = part3[turn][0];
#pragma unroll
  for (int w = 1; w < 6; w++) q3 = Sum::of(q3, part3[turn][w]);
  const float v3 = q3;
  float q16 = part16[turn][0];
#pragma unroll
  for (int w = 1; w < 6; w++) q16 = Sum::of(q16, part16[turn][w]);
  const float v16 = q16;
    const float v5 = b_mul(v3, v4);
    const float v17 = b_mul(v16, v4);
  const float n8 = 0; float r8 = n8;
#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
#pragma unroll
    for (int e = 0; e < 4; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const F32 x1 = a1[j].e[e];
    const float v2 = load(x1);
    const float v6 = b_sub(v2, v5);
    const float v7 = u_square(v6);
    r8 = Sum::of(r8, (float)v7);
  } } }
  __shared__ float part8[2][6];
  r8 = over_row<Sum, 32>(r8, n8);
  if (lane % 32 == 0) part8[turn][lane / 32] = r8;
  __syncthreads();
  float q8 = part8[turn][0];
#pragma unroll
  for (int w = 1; w < 6; w++) q8 = Sum::of(q8, part8[turn][w]);
  const float v8 = q8;
    const float v9 = b_mul(v8, v4);
    const float v11 = b_add(v9, v10);
    const float v12 = u_rsqrt(v11);
  const float n19 = 0; float r19 = n19;
#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
#pragma unroll
    for (int e = 0; e < 4; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x0 = a0[j].e[e];
    const F32 x1 = a1[j].e[e];
    const F32 x2 = a2[j].e[e];
    const float v0 = load(x0);
    const float v1 = Cast<F32>::of(v0);
    const float v2 = load(x1);
    const float v6 = b_sub(v2, v5);
    const float v13 = b_mul(v6, v12);
    const float v14 = load(x2);
    const float v15 = b_mul(v1, v14);
    const float v18 = b_mul(v15, v13);
    r19 = Sum::of(r19, (float)v18);
  } } }
  __shared__ float part19[2][6];
  r19 = over_row<Sum, 32>(r19, n19);
  if (lane % 32 == 0) part19[turn][lane / 32] = r19;
  __syncthreads();
  float q19 = part19[turn][0];
#pragma unroll
  for (int w = 1; w < 6; w++) q19 = Sum::of(q19, part19[turn][w]);
  const float v19 = q19;
    const float v20 = b_mul(v19, v4);
#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
    A4 y4;
    A5 y5;
#pragma unroll
    for (int e = 0; e < 4; e++) {
    const Ix at = row * (Ix)p.width + c + e;
    const BF16 x0 = a0[j].e[e];
    const F32 x1 = a1[j].e[e];
    const F32 x2 = a2[j].e[e];
    const F32 x3 = a3[j].e[e];
    const float v0 = load(x0);
    const float v1 = Cast<F32>::of(v0);
    const float v2 = load(x1);
    const float v6 = b_sub(v2, v5);
    const float v13 = b_mul(v6, v12);
    const float v14 = load(x2);
    const float v15 = b_mul(v1, v14);
    const float v21 = b_mul(v13, v20);
    const float v22 = b_sub(v15, v17);
    const float v23 = b_sub(v22, v21);
    const float v24 = b_mul(v23, v12);
    const float v25 = b_mul(v1, v13);
    const float v26 = load(x3);
    const float v27 = b_add(v26, v24);
    const float v28 = Cast<BF16>::of(v27);
    put(y4.e[e], v27);
    put(y5.e[e], v28);
    s25[j][e] += v25;
    s1[j][e] += v1;
    s28[j][e] += v28;
    }
    *(A4*)((F32*)p.p[4] + b4 + c) = y4;
    *(A5*)((BF16*)p.p[5] + b5 + c) = y5;
  } }
  row = next; turn ^= 1;
  b0 = g0;
  b1 = g1;
  b2 = g2;
  b3 = g3;
  b4 = g4;
  b5 = g5;
#pragma unroll
  for (int j = 0; j < 1; j++) {
    a0[j] = m0[j];
    a1[j] = m1[j];
    a3[j] = m3[j];
  }
  }
#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
#pragma unroll
    for (int e = 0; e < 4; e++) {
    ((float*)p.p[6])[group * (Ix)p.width + c + e] = s25[j][e];
  } } }

#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
#pragma unroll
    for (int e = 0; e < 4; e++) {
    ((float*)p.p[7])[group * (Ix)p.width + c + e] = s1[j][e];
  } } }

#pragma unroll
  for (int j = 0; j < 1; j++) {
  const u32 c = (j * 192 + lane) * 4;
  {
#pragma unroll
    for (int e = 0; e < 4; e++) {
    ((float*)p.p[8])[group * (Ix)p.width + c + e] = s28[j][e];
  } } }

}
