// Pieces put next to each other along rows: one vector of bytes, `V`, to a thread.

#define MOST 8
struct Cat {
  u64 to, rows, width;            // rows, and vectors of a row of the result
  u64 from[MOST], begin[MOST];    // the first vector of each piece in a row; beyond all for none
  i64 stride[MOST];               // vectors from a row of a piece to the next
};

extern "C" __global__ void __launch_bounds__(256) k(Cat p) {
  const Ix i = (Ix)blockIdx.x * 256 + threadIdx.x;
  if (i >= (Ix)(p.rows * p.width)) return;
  const Ix row = i / (Ix)p.width, at = i % (Ix)p.width;
  u64 from = p.from[0], begin = 0;
  i64 stride = p.stride[0];
#pragma unroll
  for (int j = 1; j < MOST; j++)
    if (at >= p.begin[j]) { from = p.from[j]; begin = p.begin[j]; stride = p.stride[j]; }
  ((V*)p.to)[i] = ((const V*)from)[(i64)row * stride + (i64)(at - begin)];
}
