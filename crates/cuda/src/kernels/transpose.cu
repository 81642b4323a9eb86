// Matrices with rows and columns exchanged, tile by tile. `E` is the element; `LOAD` and `STORE`
// elements are read and written at once (2 where rows begin at even addresses).

struct Transpose {
  u64 p[2];           // from, to
  u64 rows, columns;  // of a matrix that is read
  u64 down, across;   // tiles of a matrix
};
#define TILE 64
struct alignas(2 * sizeof(E)) Two { E v[2]; };

extern "C" __global__ void k(Transpose w) {
  __shared__ E tile[TILE][TILE + 2];
  u64 block = blockIdx.x;
  u64 x = (block % w.across) * TILE; block /= w.across;
  u64 y = (block % w.down) * TILE; block /= w.down;
  const E* from = (const E*)w.p[0] + block * w.rows * w.columns;
  E* to = (E*)w.p[1] + block * w.rows * w.columns;
  for (u32 q = threadIdx.x; q < TILE * TILE / LOAD; q += blockDim.x) {
    u32 r = q / (TILE / LOAD), c = q % (TILE / LOAD) * LOAD;
    if (y + r >= w.rows || x + c >= w.columns) continue;
    const E* at = from + (y + r) * w.columns + x + c;
#if LOAD == 2
    Two two = *(const Two*)at;
    tile[r][c] = two.v[0]; tile[r][c + 1] = two.v[1];
#else
    tile[r][c] = *at;
#endif
  }
  __syncthreads();
  for (u32 q = threadIdx.x; q < TILE * TILE / STORE; q += blockDim.x) {
    u32 c = q / (TILE / STORE), r = q % (TILE / STORE) * STORE;
    if (y + r >= w.rows || x + c >= w.columns) continue;
    E* at = to + (x + c) * w.rows + y + r;
#if STORE == 2
    Two two; two.v[0] = tile[r][c]; two.v[1] = tile[r + 1][c];
    *(Two*)at = two;
#else
    *at = tile[r][c];
#endif
  }
}
