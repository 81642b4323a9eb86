struct P {
  u64 p[3];
  u64 rows, width, parts, part;
};
typedef u32 Ix;
extern "C" __global__ void __launch_bounds__(256) k(P p) {
  const Ix first = ((Ix)blockIdx.x * 256 + threadIdx.x) * 1;
  if (first >= p.rows) return;
  for (Ix at = first; at < first + 1 && at < p.rows; at++) {
    const F32 x0 = ((const F32*)p.p[0])[at];
    const F32 x1 = ((const F32*)p.p[1])[at];
    const float v0 = load(x0);
    const float v1 = load(x1);
    const float v2 = b_mul(v0, v1);
    const float v3 = u_tanh(v2);
    const float v4 = Cast<F32>::of(__longlong_as_double(0x3fb999999999999aLL));
    const float v5 = b_add(v3, v4);
    put(((F32*)p.p[2])[at], v5);
  }
}
