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
