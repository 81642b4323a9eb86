// Factorisations of small matrices, and what is before and after those of the libraries. `C` is the
// type of elements, float or double. Matrices are row-major unless said otherwise.
//
// Small ones: a block of `THREADS` has a matrix of at most `MOST` elements, in shared memory. They
// follow the CPU's conventions (crates/cpu/src/linalg) to the letter: pivots, signs, NaN.

struct Matrices {
  u64 p[8];         // addresses
  u64 count;        // matrices
  u64 m, n, k;      // rows, columns, and a number of the kernel
  i64 s[6];         // strides and numbers of the kernel
};
FN u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
FN C size_of(C x) { return x < 0 ? -x : x; }
FN bool is_finite(C x) { return x * (C)0 == (C)0; }
// The power of two that takes a size to a range in which squares are exact enough; 1 if it is
// there.
FN C power_for(C most) {
  const C low = sizeof(C) == 8 ? (C)1e-140 : (C)1e-17, high = sizeof(C) == 8 ? (C)1e140 : (C)1e17;
  if (most == 0 || !is_finite(most) || (most > low && most < high)) return 1;
  const int limit = sizeof(C) == 8 ? 1022 : 126;
  int e = -ilogb((double)most);
  return (C)ldexp(1.0, e > limit ? limit : e < -limit ? -limit : e);
}
FN C warp_sum(C x) { for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d); return x; }
FN C warp_max(C x) { for (int d = 16; d; d >>= 1) { C y = __shfl_xor_sync(~0u, x, d); x = y > x ? y : x; } return x; }

#ifdef CHOLESKY
// p: x, out.
extern "C" __global__ void __launch_bounds__(THREADS) k(Matrices p) {
  __shared__ C a[MOST];
  const int n = (int)p.n, t = (int)threadIdx.x;
  const C* x = (const C*)p.p[0] + (u64)blockIdx.x * n * n; C* out = (C*)p.p[1] + (u64)blockIdx.x * n * n;
  for (int i = t; i < n * n; i += THREADS) a[i] = x[i];
  __syncthreads();
  int reached = n;
  for (int j = 0; j < n; j++) {
    const C d = a[j * n + j];
    if (!(d > 0)) { reached = j; break; }
    const C root = (C)sqrt(d);
    __syncthreads();
    for (int i = j + t; i < n; i += THREADS) a[i * n + j] = i == j ? root : a[i * n + j] / root;
    __syncthreads();
    const int rest = n - j - 1;
    for (int q = t; q < rest * rest; q += THREADS) {
      const int r = j + 1 + q / rest, c = j + 1 + q % rest;
      if (c <= r) a[r * n + c] -= a[r * n + j] * a[c * n + j];
    }
    __syncthreads();
  }
  for (int i = t; i < n * n; i += THREADS) {
    const int r = i / n, c = i % n;
    out[i] = c > r ? (C)0 : c >= reached ? (C)NOT_A_NUMBER : a[i];
  }
}
#endif

#ifdef CHOLESKY_AFTER
// p: out, info (int); k: blocks of a matrix. Zeros above the diagonal, and NaN in the columns from
// the first minor on that is not positive. Other blocks may write NaN while this one reads the
// diagonal, but only from that column on.
extern "C" __global__ void __launch_bounds__(256) k(Matrices p) {
  __shared__ int reached;
  const int n = (int)p.n; const u64 matrix = blockIdx.x / p.k, part = blockIdx.x % p.k;
  volatile C* a = (C*)p.p[0] + matrix * n * n;
  const int info = ((const int*)p.p[1])[matrix];
  if (threadIdx.x == 0) reached = info > 0 ? info - 1 : n;
  __syncthreads();
  for (int i = (int)threadIdx.x; i < n; i += 256) { const C d = a[(u64)i * n + i]; if (!(d > 0)) atomicMin(&reached, i); }
  __syncthreads();
  const int first = reached;
  for (int r = (int)part; r < n; r += (int)p.k)
    for (int c = (int)threadIdx.x; c < n; c += 256)
      if (c > r) a[(u64)r * n + c] = 0; else if (c >= first) a[(u64)r * n + c] = (C)NOT_A_NUMBER;
}
#endif

#ifdef LU
// p: x, out, pivots (int, from 1). A column without a pivot is left unchanged; what is not finite
// counts as the largest.
extern "C" __global__ void __launch_bounds__(THREADS) k(Matrices p) {
  __shared__ C a[MOST]; __shared__ int found;
  const int m = (int)p.m, n = (int)p.n, t = (int)threadIdx.x, steps = m < n ? m : n;
  const C* x = (const C*)p.p[0] + (u64)blockIdx.x * m * n; C* out = (C*)p.p[1] + (u64)blockIdx.x * m * n;
  int* pivots = (int*)p.p[2] + (u64)blockIdx.x * steps;
  for (int i = t; i < m * n; i += THREADS) a[i] = x[i];
  __syncthreads();
  for (int j = 0; j < steps; j++) {
    if (t < 32) {
      C best = -1; int at = j;
      for (int i = j + t; i < m; i += 32) {
        const C v = a[i * n + j], s = is_finite(v) ? size_of(v) : (C)INF;
        if (s > best) { best = s; at = i; }
      }
      for (int d = 16; d; d >>= 1) {
        const C other = __shfl_xor_sync(~0u, best, d); const int place = __shfl_xor_sync(~0u, at, d);
        if (other > best || (other == best && place < at)) { best = other; at = place; }
      }
      if (t == 0) { found = at; pivots[j] = at + 1; }
    }
    __syncthreads();
    const int row = found;
    if (row != j) for (int c = t; c < n; c += THREADS) { const C v = a[j * n + c]; a[j * n + c] = a[row * n + c]; a[row * n + c] = v; }
    __syncthreads();
    const C pivot = a[j * n + j];
    if (pivot != 0) {
      for (int i = j + 1 + t; i < m; i += THREADS) a[i * n + j] /= pivot;
      __syncthreads();
      const int rows = m - j - 1, columns = n - j - 1;
      for (int q = t; q < rows * columns; q += THREADS) {
        const int r = j + 1 + q / columns, c = j + 1 + q % columns;
        a[r * n + c] -= a[r * n + j] * a[j * n + c];
      }
    }
    __syncthreads();
  }
  for (int i = t; i < m * n; i += THREADS) out[i] = a[i];
}
#endif

#ifdef QR
// p: x, q, r; k: columns of Q and rows of R. Householder's reflections with LAPACK's signs.
extern "C" __global__ void __launch_bounds__(THREADS) k(Matrices p) {
  __shared__ C a[MOST]; __shared__ C taus[MOST < 64 ? MOST : 64]; __shared__ C head_of, by, power_of;
  const int m = (int)p.m, n = (int)p.n, wide = (int)p.k, t = (int)threadIdx.x, steps = m < n ? m : n;
  const C* x = (const C*)p.p[0] + (u64)blockIdx.x * m * n;
  C* q = (C*)p.p[1] + (u64)blockIdx.x * m * wide; C* r = (C*)p.p[2] + (u64)blockIdx.x * wide * n;
  for (int i = t; i < m * n; i += THREADS) a[i] = x[i];
  __syncthreads();
  for (int j = 0; j < steps; j++) {
    if (t < 32) {
      C most = 0, below = 0; bool any = false;
      for (int i = j + t; i < m; i += 32) { const C v = a[i * n + j]; most = size_of(v) > most ? size_of(v) : most; any = any || (i > j && v != 0); }
      const C power = power_for(warp_max(most));
      for (int i = j + 1 + t; i < m; i += 32) { const C v = a[i * n + j] * power; below += v * v; }
      below = warp_sum(below);
      any = __any_sync(~0u, any);
      if (t == 0) {
        const C head = a[j * n + j] * power, size = (C)sqrt(head * head + below), beta = head < 0 ? size : -size;
        taus[j] = any ? (beta - head) / beta : (C)0;
        head_of = beta / power; by = (C)1 / (head - beta); power_of = power;
      }
    }
    __syncthreads();
    const C tau = taus[j];
    if (tau != 0) {
      for (int i = j + t; i < m; i += THREADS) a[i * n + j] = i == j ? head_of : a[i * n + j] * power_of * by;
      __syncthreads();
      for (int c = j + 1 + t; c < n; c += THREADS) {
        C along = a[j * n + c];
        for (int i = j + 1; i < m; i++) along += a[i * n + c] * a[i * n + j];
        along *= tau;
        a[j * n + c] -= along;
        for (int i = j + 1; i < m; i++) a[i * n + c] -= along * a[i * n + j];
      }
    }
    __syncthreads();
  }
  for (int i = t; i < wide * n; i += THREADS) r[i] = i / n <= i % n ? a[i] : (C)0;
  // A thread has a column of Q: that of the identity, reflected by the last one first.
  for (int c = t; c < wide; c += THREADS) {
    for (int i = 0; i < m; i++) q[(u64)i * wide + c] = i == c ? (C)1 : (C)0;
    for (int j = steps - 1; j >= 0; j--) {
      if (taus[j] == 0) continue;
      C along = q[(u64)j * wide + c];
      for (int i = j + 1; i < m; i++) along += q[(u64)i * wide + c] * a[i * n + j];
      along *= taus[j];
      q[(u64)j * wide + c] -= along;
      for (int i = j + 1; i < m; i++) q[(u64)i * wide + c] -= along * a[i * n + j];
    }
  }
}
#endif

#ifdef SOLVE
// p: triangles, right-hand sides [count, n, k], in place. s: strides of a triangle along matrices,
// rows and columns; 1 if upper; 1 if the diagonal is ones. A thread has a right-hand side.
extern "C" __global__ void k(Matrices p) {
  u64 q = thread_index(); if (q >= p.count * p.k) return;
  const int n = (int)p.n; const i64 row = p.s[1], column = p.s[2], step = (i64)p.k;
  const C* a = (const C*)p.p[0] + (i64)(q / p.k) * p.s[0];
  C* x = (C*)p.p[1] + (q / p.k) * p.n * p.k + q % p.k;
  for (int done = 0; done < n; done++) {
    const int i = p.s[3] ? n - 1 - done : done, from = p.s[3] ? i + 1 : 0, to = p.s[3] ? n : i;
    C sum = x[i * step];
    for (int j = from; j < to; j++) sum -= a[i * row + j * column] * x[j * step];
    x[i * step] = p.s[4] ? sum : sum / a[i * row + i * column];
  }
}
#endif

#ifdef ADDRESSES
// p: list of triangles, list of right-hand sides; s: address and step in bytes of each.
extern "C" __global__ void k(Matrices p) {
  u64 q = thread_index(); if (q >= p.count) return;
  ((u64*)p.p[0])[q] = (u64)(p.s[0] + (i64)q * p.s[1]); ((u64*)p.p[1])[q] = (u64)(p.s[2] + (i64)q * p.s[3]);
}
#endif

#ifdef PERMUTATION
// p: pivots (int, from 1), order (i64), fault; m: rows, n: pivots, k: the call. A thread has a
// list.
extern "C" __global__ void k(Matrices p) {
  u64 q = thread_index(); if (q >= p.count) return;
  const int* pivots = (const int*)p.p[0] + q * p.n; i64* order = (i64*)p.p[1] + q * p.m;
  for (u64 i = 0; i < p.m; i++) order[i] = (i64)i;
  for (u64 j = 0; j < p.n; j++) {
    const i64 row = (i64)pivots[j] - 1;
    if (row < 0 || row >= (i64)p.m) { report((Fault*)p.p[2], (u32)p.k, q * p.n + j, row, (i64)p.m); return; }
    const i64 x = order[j]; order[j] = order[row]; order[row] = x;
  }
}
#endif

#ifdef ROWS
// p: x [count, m, n], order [count, m], out; k: 1 to undo. Row i of out is row order[i] of x.
extern "C" __global__ void k(Matrices p) {
  u64 t = thread_index(); if (t >= p.count * p.m * p.n) return;
  const u64 c = t % p.n, i = t / p.n % p.m, matrix = t / p.n / p.m;
  const u64 from = (matrix * p.m + (u64)((const i64*)p.p[1])[matrix * p.m + i]) * p.n + c;
  if (p.k) ((C*)p.p[2])[from] = ((const C*)p.p[0])[t]; else ((C*)p.p[2])[t] = ((const C*)p.p[0])[from];
}
#endif

#ifdef UPPER
// p: x, column-major; out [count, m, n]; s: from matrix to matrix, and from column to column, of x.
extern "C" __global__ void k(Matrices p) {
  u64 t = thread_index(); if (t >= p.count * p.m * p.n) return;
  const u64 c = t % p.n, i = t / p.n % p.m, matrix = t / p.n / p.m;
  ((C*)p.p[1])[t] = i <= c ? ((const C*)p.p[0])[(i64)matrix * p.s[0] + (i64)c * p.s[1] + (i64)i] : (C)0;
}
#endif

#ifdef IDENTITY
// p: out [count, m, n].
extern "C" __global__ void k(Matrices p) {
  u64 t = thread_index(); if (t >= p.count * p.m * p.n) return;
  ((C*)p.p[0])[t] = t % p.n == t / p.n % p.m ? (C)1 : (C)0;
}
#endif

#ifdef BEFORE
// What eigenvalues and singular values are computed of. p: x, out, powers, bad (int); k: 1 if out
// is transposed; s: 1 if only the lower triangle is read. A block has a matrix. It is scaled by a
// power of two if its elements are near the largest or smallest numbers; one with an element that
// is not finite becomes an identity and is marked.
extern "C" __global__ void __launch_bounds__(256) k(Matrices p) {
  __shared__ C most_of[8]; __shared__ int bad_of[8];
  const u64 m = p.m, n = p.n; const int t = (int)threadIdx.x;
  const C* x = (const C*)p.p[0] + blockIdx.x * m * n; C* out = (C*)p.p[1] + blockIdx.x * m * n;
  C most = 0; int bad = 0;
  for (u64 i = t; i < m * n; i += 256) {
    if (p.s[0] && i % n > i / n) continue;
    const C v = x[i];
    most = size_of(v) > most ? size_of(v) : most; bad |= !is_finite(v);
  }
  most = warp_max(most); bad = __any_sync(~0u, bad);
  if (t % 32 == 0) { most_of[t / 32] = most; bad_of[t / 32] = bad; }
  __syncthreads();
  for (int w = 0; w < 8; w++) { most = most_of[w] > most ? most_of[w] : most; bad |= bad_of[w]; }
  const C power = bad ? (C)1 : power_for(most);
  if (t == 0) { ((C*)p.p[2])[blockIdx.x] = power; ((int*)p.p[3])[blockIdx.x] = bad; }
  for (u64 i = t; i < m * n; i += 256) {
    const u64 r = i / n, c = i % n;
    const C v = bad ? (r == c ? (C)1 : (C)0) : p.s[0] && c > r ? (C)0 : x[i] * power;
    out[p.k ? c * m + r : i] = v;
  }
}
#endif

#ifdef AFTER
// p: left vectors, right vectors, values, then the results of the same order, powers, info and bad.
// A warp has one left and one right vector. m, n: their lengths; k: values of a matrix; count: all
// vectors, of `most` each. s: left from matrix to matrix, from vector to vector and along it, then
// right. The sizes of results are in `left` and `right`.
struct Vectors { Matrices of; u64 bad, left, right, most; };
extern "C" __global__ void __launch_bounds__(256) k(Vectors w) {
  const Matrices& p = w.of;
  const u64 q = thread_index() / 32; if (q >= p.count) return;
  const u64 matrix = q / w.most, j = q % w.most; const int lane = (int)threadIdx.x % 32;
  const C* left = (const C*)p.p[0] + (i64)matrix * p.s[0] + (i64)j * p.s[1];
  const C* right = (const C*)p.p[1] + (i64)matrix * p.s[3] + (i64)j * p.s[4];
  const bool bad = ((const int*)w.bad)[matrix] != 0 || ((const int*)p.p[7])[matrix] != 0;
  C sign = 1;
  if (j < p.k) {
    // The largest element, the first of equals, is positive.
    C best = -1; u64 at = 0; C value = 0;
    for (u64 i = lane; i < p.m; i += 32) { const C v = left[(i64)i * p.s[2]]; if (size_of(v) > best) { best = size_of(v); at = i; value = v; } }
    for (int d = 16; d; d >>= 1) {
      const C other = __shfl_xor_sync(~0u, best, d), its = __shfl_xor_sync(~0u, value, d); const u64 place = __shfl_xor_sync(~0u, at, d);
      if (other > best || (other == best && place < at)) { best = other; at = place; value = its; }
    }
    sign = value < 0 ? (C)-1 : (C)1;
    if (lane == 0) ((C*)p.p[5])[matrix * p.k + j] = bad ? (C)NOT_A_NUMBER : ((const C*)p.p[2])[matrix * p.k + j] / ((const C*)p.p[6])[matrix];
  }
  if (j < w.left)
    for (u64 i = lane; i < p.m; i += 32) ((C*)p.p[3])[(matrix * p.m + i) * w.left + j] = bad ? (C)NOT_A_NUMBER : sign * left[(i64)i * p.s[2]];
  if (j < w.right)
    for (u64 i = lane; i < p.n; i += 32) ((C*)p.p[4])[(matrix * w.right + j) * p.n + i] = bad ? (C)NOT_A_NUMBER : sign * right[(i64)i * p.s[5]];
}
#endif
