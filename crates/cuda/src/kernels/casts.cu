// Casts between f32 and 16 bits: all that follow one another are one kernel, and a block has a part
// of one of them. `F` is the element of operands, `T` that of results, MOST the number of casts
// that fit, CHUNK the elements of a block. All operands are dense.

struct Step {
  u64 out, x;
  u64 n;    // elements
  u64 end;  // blocks of the casts up to this one
};
struct Casts {
  u64 steps;
  Step of[MOST];
};
#if __CUDA_ARCH__ >= 700
#define CONSTANT __grid_constant__
#else
#define CONSTANT
#endif
// Elements of a thread at once: those of 16 bytes of the narrower dtype.
#define V 8

extern "C" __global__ void __launch_bounds__(256) k(const CONSTANT Casts p) {
  u32 low = 0, high = (u32)p.steps - 1;
  while (low < high) {
    u32 middle = (low + high) / 2;
    if (blockIdx.x < p.of[middle].end) high = middle; else low = middle + 1;
  }
  const Step& s = p.of[low];
  const u64 from = (blockIdx.x - (low ? p.of[low - 1].end : 0)) * CHUNK;
  const u64 to = from + CHUNK < s.n ? from + CHUNK : s.n;
  const F* x = (const F*)s.x; T* y = (T*)s.out;
  // By 16 bytes where both are aligned, up to the elements of the last vector.
  const u64 whole = (s.x | s.out) % 16 == 0 ? from + (to - from) / V * V : from;
#pragma unroll 4
  for (u64 i = from + threadIdx.x * V; i < whole; i += 256 * V) {
    uint4 a[V * sizeof(F) / 16], b[V * sizeof(T) / 16];
#pragma unroll
    for (int k = 0; k < V * sizeof(F) / 16; k++) a[k] = ((const uint4*)(x + i))[k];
#pragma unroll
    for (int e = 0; e < V; e++) store(((T*)b)[e], load(((const F*)a)[e]));
#pragma unroll
    for (int k = 0; k < V * sizeof(T) / 16; k++) ((uint4*)(y + i))[k] = b[k];
  }
  for (u64 i = whole + threadIdx.x; i < to; i += 256) store(y[i], load(x[i]));
}
