// Sums over the rows of tables, in one order: 32 columns to a block, whose warps take every
// thirty-second row each. `C` is the type of the tables; `STORE` rounds to the dtype of a result.

struct Tables {
  u64 from[4], to[4];
  u64 width, rows;
};

extern "C" __global__ void __launch_bounds__(1024) k(Tables p) {
  __shared__ C part[32][33];
  const u64 blocks = (p.width + 31) / 32, table = blockIdx.x / blocks, first = blockIdx.x % blocks * 32;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  C sum = 0;
  if (first + lane < p.width) {
    const C* from = (const C*)p.from[table] + first + lane;
#pragma unroll 8
    for (u64 row = warp; row < p.rows; row += 32) sum += from[row * p.width];
  }
  part[warp][lane] = sum;
  __syncthreads();
  sum = over_row<Sum, 32>(part[lane][warp], (C)0);
  if (lane == 0 && first + warp < p.width) { STORE(sum, first + warp) }
}
