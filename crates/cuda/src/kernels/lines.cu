// Kernels over lines of an axis and over indices. `E` is the element, `C` its compute type.
// Parameters are words of eight bytes; an array of axes has room for eight.

struct Lines {
  u64 p[6];        // addresses
  u64 lines, len;  // how many lines, and their length
  u64 rank;        // axes that number the lines
  u64 n[8];        // their lengths
  i64 s[4][8];     // strides of operands along them
  i64 step[4];     // strides of operands along the line
  u64 a, b, c;     // numbers of the kernel
};
FN void offsets(const Lines& p, u64 q, int operands, i64* o) {
  for (int k = 0; k < operands; k++) o[k] = 0;
  for (int d = (int)p.rank - 1; d >= 0; d--) {
    i64 c = (i64)(q % p.n[d]); q /= p.n[d];
    for (int k = 0; k < operands; k++) o[k] += c * p.s[k][d];
  }
}
FN u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// An unsigned key in the order of values: NaN above all, −0 equal to +0.
FN u64 order(float x) { u32 b = __float_as_uint(x + 0.f); return x != x ? 0xffffffffu : b >> 31 ? ~b : b | 0x80000000u; }
FN u64 order(double x) { u64 b = (u64)__double_as_longlong(x + 0.0); return x != x ? ~0ull : b >> 63 ? ~b : b | 0x8000000000000000ull; }
FN u64 order(i64 x) { return (u64)x ^ 0x8000000000000000ull; }

#ifdef GATHER
// p: x, index, out, fault; c: number of the call, b: length of the axis. One line per index.
// Operands along axes: 0 = x without the axis, 1 = index. step[0] = x along the axis.
extern "C" __global__ void k(Lines p) {
  u64 t = thread_index(); if (t >= p.lines) return;
  i64 o[2]; offsets(p, t, 2, o);
  i64 i = ((const i64*)p.p[1])[o[1]];
  if (i < 0 || i >= (i64)p.b) { report((Fault*)p.p[3], (u32)p.c, t, i, (i64)p.b); return; }
  ((E*)p.p[2])[t] = ((const E*)p.p[0])[o[0] + i * p.step[0]];
}
#endif

#ifdef SCATTER
// p: out, sorted indices, their positions, source, fault; lines: those of the source; len: along
// the axis; a: 1 if all lines share one list; b: length of the axis; c: the call.
// Operands along axes: 0 = out without the axis, 1 = source without the axis, 2 = the list.
// step: out and source along the axis, and how many indices there are behind it.
extern "C" __global__ void k(Lines p) {
  u64 t = thread_index(); if (t >= p.lines * p.len) return;
  // Neighbouring threads have neighbouring lines, which are neighbours in memory.
  u64 line = t % p.lines, j = t / p.lines;
  i64 o[3]; offsets(p, line, 3, o);
  const i64* sorted = (const i64*)p.p[1] + o[2]; const i64* from = (const i64*)p.p[2] + o[2];
  i64 to = sorted[j];
  if (to < 0 || to >= (i64)p.b) {
    u64 inner = (u64)p.step[2];
    report((Fault*)p.p[4], (u32)p.c, (line / inner * p.len + (u64)from[j]) * inner + line % inner, to, (i64)p.b);
    return;
  }
  if (j > 0 && sorted[j - 1] == to) return;
  E* out = (E*)p.p[0] + o[0] + to * p.step[0];
  const E* source = (const E*)p.p[3] + o[1];
  C x = load(*out);
  for (; j < p.len && sorted[j] == to; j++) { C y = load(source[from[j] * p.step[1]]); x = COMBINE; }
  store(*out, x);
}
#endif

#ifdef RANKS
// p: indices, ranks (u32, zero before); len: how many; a: slices; b: length of the axis; step[0]:
// of the indices. The rank of each by index and position, by counting: a block counts those of a
// slice of 2048 for 256 of them. Sums of integers do not depend on their order. Indices out of
// range come last.
FN u32 place(const Lines& p, u64 i) {
  i64 x = ((const i64*)p.p[0])[(i64)i * p.step[0]];
  return x < 0 || x >= (i64)p.b ? 0xfffffffeu : (u32)x;
}
extern "C" __global__ void __launch_bounds__(256) k(Lines p) {
  __shared__ uint4 tile[512];
  const u32 n = (u32)p.len, first = blockIdx.x / (u32)p.a * 256, from = blockIdx.x % (u32)p.a * 2048;
  for (u32 j = threadIdx.x; j < 2048; j += 256) ((u32*)tile)[j] = from + j < n ? place(p, from + j) : 0xffffffffu;
  __syncthreads();
  const u32 i = first + threadIdx.x;
  if (i >= n) return;
  const u32 own = place(p, i);
  u32 count = 0;
  if (from + 2048 <= first || from >= first + 256) {
    // All of the slice is before, or all of it behind.
    const u32 less = from < first ? own + 1 : own;
#pragma unroll 8
    for (int j = 0; j < 512; j++) {
      uint4 x = tile[j];
      count += (x.x < less) + (x.y < less) + (x.z < less) + (x.w < less);
    }
  } else {
    for (u32 j = 0; j < 2048; j++) {
      u32 x = ((const u32*)tile)[j];
      count += x < own || (x == own && from + j < i);
    }
  }
  atomicAdd((u32*)p.p[1] + i, count);
}
#endif

#ifdef ORDER
// p: indices, ranks, sorted indices, their positions; len: how many; step[0]: of the indices.
extern "C" __global__ void k(Lines p) {
  u64 t = thread_index(); if (t >= p.len) return;
  u32 to = ((const u32*)p.p[1])[t];
  ((i64*)p.p[2])[to] = ((const i64*)p.p[0])[(i64)t * p.step[0]];
  ((i64*)p.p[3])[to] = (i64)t;
}
#endif

#if defined(SCATTER_ROWS) || defined(SCATTER_JOIN)
// Whole rows, contiguous, by one list. p: out, sorted indices, their positions, source, fault, sums
// of parts of runs; lines: elements of a row; len: of the list; a: warps of a row; b: length of the
// axis; c: the call. step: out and source along the axis, and indices behind one of the list.
//
// A warp adds a run of equal indices for its part of a row, in order. A run that goes on behind a
// multiple of CUT is cut there: sums of its parts go to memory, two places for each CUT of the list
// (for the run that goes on from before, and for that which goes on behind), and are joined then.
struct __align__(sizeof(E) * VECTOR) Vector { E e[VECTOR]; };
FN C* part(const Lines& p, u64 place, u64 column) { return (C*)p.p[5] + place * p.lines + column; }
extern "C" __global__ void __launch_bounds__(256) k(Lines p) {
  const u32 warp = (u32)(thread_index() / 32), n = (u32)p.a;
  const u64 column = ((u64)(warp % n) * 32 + threadIdx.x % 32) * VECTOR;
  const i64* sorted = (const i64*)p.p[1]; const i64* from = (const i64*)p.p[2];
#ifdef SCATTER_ROWS
  u64 j = warp / n;
  if (j >= p.len) return;
  const i64 to = sorted[j];
  if (to < 0 || to >= (i64)p.b) {
    if (column == 0) report((Fault*)p.p[4], (u32)p.c, (u64)from[j] * (u64)p.step[2], to, (i64)p.b);
    return;
  }
  const bool begins = j == 0 || sorted[j - 1] != to;
  if ((!begins && j % CUT != 0) || column >= p.lines) return;
  const u64 place = j / CUT * 2 + begins, cut = (j / CUT + 1) * CUT, end = cut < p.len ? cut : p.len;
  const bool whole = begins && !(cut < p.len && sorted[cut] == to);
  const E* source = (const E*)p.p[3] + column;
  E* out = (E*)p.p[0] + to * p.step[0] + column;
  C sum[VECTOR];
  Vector v;
  if (whole) v = *(const Vector*)out; else v = *(const Vector*)(source + from[j++] * p.step[1]);
#pragma unroll
  for (int e = 0; e < VECTOR; e++) sum[e] = load(v.e[e]);
#pragma unroll 4
  for (; j < end && sorted[j] == to; j++) {
    Vector next = *(const Vector*)(source + from[j] * p.step[1]);
#pragma unroll
    for (int e = 0; e < VECTOR; e++) { C x = sum[e], y = load(next.e[e]); x = COMBINE; sum[e] = x; }
  }
  if (!whole) {
#pragma unroll
    for (int e = 0; e < VECTOR; e++) part(p, place, column)[e] = sum[e];
    return;
  }
#else
  const u64 at = (u64)(warp / n) * CUT, cut = at + CUT;
  if (cut >= p.len || column >= p.lines) return;
  const i64 to = sorted[cut];
  if (sorted[cut - 1] != to || (at > 0 && sorted[at - 1] == to) || to < 0 || to >= (i64)p.b) return;
  E* out = (E*)p.p[0] + to * p.step[0] + column;
  Vector v = *(const Vector*)out;
  C sum[VECTOR];
#pragma unroll
  for (int e = 0; e < VECTOR; e++) { C x = load(v.e[e]), y = part(p, at / CUT * 2 + 1, column)[e]; x = COMBINE; sum[e] = x; }
  for (u64 j = cut; j < p.len && sorted[j] == to; j += CUT) {
#pragma unroll
    for (int e = 0; e < VECTOR; e++) { C x = sum[e], y = part(p, j / CUT * 2, column)[e]; x = COMBINE; sum[e] = x; }
  }
#endif
#pragma unroll
  for (int e = 0; e < VECTOR; e++) store(v.e[e], sum[e]);
  *(Vector*)out = v;
}
#endif

#ifdef KEYS
// p: x, keys (u64), positions (u32); len: a power of two; a: elements of a line; b: 1 if
// descending.
extern "C" __global__ void k(Lines p) {
  u64 t = thread_index(); if (t >= p.lines * p.len) return;
  u64 line = t / p.len, j = t % p.len;
  i64 o[1]; offsets(p, line, 1, o);
  u64 key = ~0ull;
  if (j < p.a) { key = order(load(((const E*)p.p[0])[o[0] + (i64)j * p.step[0]])); if (p.b) key = ~key; }
  ((u64*)p.p[1])[t] = key; ((u32*)p.p[2])[t] = (u32)j;
}
#endif

#ifdef EXCHANGE
// One step of a bitonic sort in memory: p: keys, positions; a: distance, b: length of a run.
extern "C" __global__ void k(Lines p) {
  u64 t = thread_index(); if (t >= p.lines * (p.len / 2)) return;
  u64 line = t / (p.len / 2), h = t % (p.len / 2);
  u64 i = 2 * p.a * (h / p.a) + h % p.a, j = i + p.a;
  u64* key = (u64*)p.p[0] + line * p.len; u32* at = (u32*)p.p[1] + line * p.len;
  bool up = (i & p.b) == 0;
  bool larger = key[i] > key[j] || (key[i] == key[j] && at[i] > at[j]);
  if (larger == up) { u64 x = key[i]; key[i] = key[j]; key[j] = x; u32 y = at[i]; at[i] = at[j]; at[j] = y; }
}
#endif

#ifdef SORT
// A block sorts a line in shared memory: p: keys, positions; len: a power of two, at most 2048.
extern "C" __global__ void __launch_bounds__(512) k(Lines p) {
  __shared__ u64 key[2048]; __shared__ u32 at[2048];
  const u32 n = (u32)p.len;
  u64* keys = (u64*)p.p[0] + blockIdx.x * p.len; u32* places = (u32*)p.p[1] + blockIdx.x * p.len;
  for (u32 i = threadIdx.x; i < n; i += 512) { key[i] = keys[i]; at[i] = places[i]; }
  __syncthreads();
  for (u32 run = 2; run <= n; run *= 2)
    for (u32 d = run / 2; d > 0; d /= 2) {
      for (u32 h = threadIdx.x; h < n / 2; h += 512) {
        u32 i = 2 * d * (h / d) + h % d, j = i + d;
        bool larger = key[i] > key[j] || (key[i] == key[j] && at[i] > at[j]);
        if (larger == ((i & run) == 0)) { u64 x = key[i]; key[i] = key[j]; key[j] = x; u32 y = at[i]; at[i] = at[j]; at[j] = y; }
      }
      __syncthreads();
    }
  for (u32 i = threadIdx.x; i < n; i += 512) places[i] = at[i];
}
#endif

#ifdef TAKE
// p: x, positions, values, indices; len: ranks, a: the first rank, b: length of a line of
// positions. Operands along axes: 0 = x, 1 = results. step: along the axis.
extern "C" __global__ void k(Lines p) {
  u64 t = thread_index(); if (t >= p.lines * p.len) return;
  u64 line = t / p.len, j = t % p.len;
  i64 o[2]; offsets(p, line, 2, o);
  i64 i = ((const u32*)p.p[1])[line * p.b + p.a + j];
  i64 to = o[1] + (i64)j * p.step[1];
  ((E*)p.p[2])[to] = ((const E*)p.p[0])[o[0] + i * p.step[0]];
  ((i64*)p.p[3])[to] = i;
}
#endif

#ifdef ARG
// p: x, out. A warp has a line. The first extreme, or the first NaN.
extern "C" __global__ void k(Lines p) {
  u64 line = thread_index() / 32; if (line >= p.lines) return;
  u32 lane = threadIdx.x % 32;
  i64 o[2]; offsets(p, line, 2, o);
  C best = 0; i64 where = -1;
  for (u64 j = lane; j < p.len; j += 32) {
    C x = load(((const E*)p.p[0])[o[0] + (i64)j * p.step[0]]);
    if (where < 0 || BEATS(x, best) || (x != x && best == best)) { best = x; where = (i64)j; }
  }
  for (int d = 16; d; d >>= 1) {
    C x = __shfl_xor_sync(~0u, best, d); i64 i = __shfl_xor_sync(~0u, where, d);
    bool better = BEATS(x, best) || (x != x && best == best);
    bool equal = x == best || (x != x && best != best);
    if (i >= 0 && (where < 0 || better || (equal && i < where))) { best = x; where = i; }
  }
  if (lane == 0) ((i64*)p.p[1])[o[1]] = where;
}
#endif

#ifdef CUMULATE
// p: x, out; a: threads of a line (1 or 256); b: 1 from the end. `W` is the type of the sums.
#ifdef LOGSUMEXP
struct Part { double m, s; };
FN Part none() { Part a = {-INF, 0.0}; return a; }
FN Part one(double x) { Part a = {x, x == -INF ? 0.0 : 1.0}; return a; }
FN Part joined(Part a, Part b) {
  if (a.m != a.m || b.m != b.m) { Part c = {NOT_A_NUMBER, 1.0}; return c; }
  if (b.m == -INF) return a;
  if (a.m == -INF) return b;
  double m = a.m > b.m ? a.m : b.m;
  Part c = {m, (a.m == m ? a.s : a.s * exp(a.m - m)) + (b.m == m ? b.s : b.s * exp(b.m - m))};
  return c;
}
FN double value(Part a) { return a.m == INF ? INF : a.m + log(a.s); }
#else
typedef W Part;
FN Part none() { return NONE; }
FN Part one(W x) { return x; }
FN Part joined(Part a, Part b) { return K::of(a, b); }
FN W value(Part a) { return a; }
#endif
extern "C" __global__ void __launch_bounds__(256) k(Lines p) {
  u64 line = thread_index() / p.a; if (line >= p.lines) return;
  u64 lane = p.a == 1 ? 0 : threadIdx.x;
  i64 o[2]; offsets(p, line, 2, o);
  u64 each = (p.len + p.a - 1) / p.a, from = lane * each, to = from + each < p.len ? from + each : p.len;
  const E* x = (const E*)p.p[0] + o[0]; E* out = (E*)p.p[1] + o[1];
  Part sum = none();
  if (p.a > 1) {
    for (u64 j = from; j < to; j++) { u64 i = p.b ? p.len - 1 - j : j; sum = joined(sum, one((W)load(x[(i64)i * p.step[0]]))); }
    __shared__ Part parts[256];
    parts[lane] = sum;
    __syncthreads();
    if (lane == 0) { Part before = none(); for (int i = 0; i < 256; i++) { Part own = parts[i]; parts[i] = before; before = joined(before, own); } }
    __syncthreads();
    sum = parts[lane];
  }
  for (u64 j = from; j < to; j++) {
    u64 i = p.b ? p.len - 1 - j : j;
    sum = joined(sum, one((W)load(x[(i64)i * p.step[0]])));
    store(out[(i64)i * p.step[1]], (C)value(sum));
  }
}
#endif

#ifdef INTEGER_DOT
// p: a, b, out (dense); lines: elements of out; len: the summed axis; a: columns, b: rows.
// Operands along the batch axes: 0 = a, 1 = b. step: a along rows and k, b along k and columns.
extern "C" __global__ void k(Lines p) {
  u64 t = thread_index(); if (t >= p.lines) return;
  u64 column = t % p.a, row = t / p.a % p.b;
  i64 o[2]; offsets(p, t / p.a / p.b, 2, o);
  const E* x = (const E*)p.p[0] + o[0] + (i64)row * p.step[0];
  const E* y = (const E*)p.p[1] + o[1] + (i64)column * p.step[3];
  i64 sum = 0;
  for (u64 j = 0; j < p.len; j++) sum = b_add(sum, b_mul((i64)load(x[(i64)j * p.step[1]]), (i64)load(y[(i64)j * p.step[2]])));
  store(((E*)p.p[2])[t], sum);
}
#endif

#ifdef RANDOM_KEYS
// p: keys (dense pairs), out; len: what one key draws.
extern "C" __global__ void k(Lines p) {
  u64 t = thread_index(); if (t >= p.lines * p.len) return;
  const i64* key = (const i64*)p.p[0] + 2 * (t / p.len);
  u64 at = t % p.len;
  store(((E*)p.p[1])[t], DRAW);
}
#endif

#ifdef CROSS_ENTROPY
// p: logits, classes, gradient, fault, dy, losses; len: classes, c: the call. A block of THREADS
// has a row, and a thread takes VECTOR elements at once: more than one only if rows are contiguous
// and aligned. Losses and dy are in the compute type. Operands: 0 = logits, 1 = classes, 2 =
// gradient, 3 = dy; losses are dense. step: along the classes. With VJP there is a gradient, which
// may be written over the logits: these are read before.
struct __align__(sizeof(E) * VECTOR) Vector { E e[VECTOR]; };
// The exponential of a difference that is not above zero. Where logits have 16 bits, one rounded
// product is enough: it is off by 2^-24 of the difference, and half as many instructions are what
// keeps up with memory.
template <int BYTES> struct Exp { FN static C of(C x) { return u_exp(x); } };
template <> struct Exp<2> {
  FN static float of(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f)); return r; }
};
FN C power(C x) { return Exp<sizeof(E)>::of(x); }
// What values are taken relative to: the largest so far, unless all of them are infinite.
FN C origin(C most) { return u_abs(most) == (C)INF ? (C)0 : most; }
// What a sum relative to `most` is times relative to `larger`.
FN C lessened(C most, C larger) { return most == larger ? (C)1 : power(most - larger); }
FN Vector vector(const E* x, u64 j, i64 step) { return *(const Vector*)(VECTOR > 1 ? x + j : x + (i64)j * step); }
// Nothing reads the gradient before the whole row is written: it should not push other rows, which
// are read twice, out of the cache.
FN void written(E* out, u64 j, i64 step, Vector v) {
#if VECTOR > 1
  __stcs((uint4*)(out + j), *(const uint4*)&v);
#else
  out[(i64)j * step] = v.e[0];
#endif
}
// Vectors of a thread that are on their way, and blocks of a processor: one waits for its row while
// the other reads, and their rows stay in the cache for the second pass. (Measured: 1024 threads at
// once, as one block or two, take 1.1 to 1.4 times as long, as do fewer vectors; more spill.)
#define AT_ONCE (sizeof(C) == 8 ? 2 : 4)
#define BLOCKS (1024 / THREADS)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) k(Lines p) {
  i64 o[4]; offsets(p, blockIdx.x, 4, o);
  const E* x = (const E*)p.p[0] + o[0];
  const i64 wanted = ((const i64*)p.p[1])[o[1]];
  if (wanted < 0 || wanted >= (i64)p.len) { if (threadIdx.x == 0) report((Fault*)p.p[3], (u32)p.c, blockIdx.x, wanted, (i64)p.len); return; }
  const C chosen = load(x[wanted * p.step[0]]);
  const u64 from = threadIdx.x * VECTOR, by = THREADS * VECTOR;
  // One pass: the sum is that of exponentials less the largest so far. A thread has several vectors
  // on their way.
  C most = (C)-INF, sum = 0;
  for (u64 j = from; j < p.len; j += by * AT_ONCE) {
    Vector v[AT_ONCE];
#pragma unroll
    for (int n = 0; n < AT_ONCE; n++) if (j + n * by < p.len) v[n] = vector(x, j + n * by, p.step[0]);
#pragma unroll
    for (int n = 0; n < AT_ONCE; n++) {
      if (j + n * by >= p.len) break;
      C larger = most;
#pragma unroll
      for (int e = 0; e < VECTOR; e++) larger = Max::of(larger, load(v[n].e[e]));
      const C less = origin(larger);
      sum *= lessened(most, larger);
#pragma unroll
      for (int e = 0; e < VECTOR; e++) sum += power(load(v[n].e[e]) - less);
      most = larger;
    }
  }
  const C largest = over_row<Max, THREADS>(most, (C)-INF), less = origin(largest);
  sum = over_row<Sum, THREADS>(sum * lessened(most, largest), (C)0);
  if (threadIdx.x == 0) ((C*)p.p[5])[blockIdx.x] = largest + u_log(sum) - chosen;
#ifdef VJP
  // An infinite logit has no gradient, as on the CPU.
  const C dy = ((const C*)p.p[4])[o[3]], share = largest == (C)INF ? (C)NOT_A_NUMBER : (C)1 / sum;
  const C scale = share * dy;
  E* out = (E*)p.p[2] + o[2];
  for (u64 j = from; j < p.len; j += by * AT_ONCE) {
    Vector v[AT_ONCE];
#pragma unroll
    for (int n = 0; n < AT_ONCE; n++) if (j + n * by < p.len) v[n] = vector(x, j + n * by, p.step[0]);
#pragma unroll
    for (int n = 0; n < AT_ONCE; n++) {
      if (j + n * by >= p.len) break;
#pragma unroll
      for (int e = 0; e < VECTOR; e++) store(v[n].e[e], power(load(v[n].e[e]) - less) * scale);
      written(out, j + n * by, p.step[2], v[n]);
    }
  }
  // The class, by the thread that wrote the vector around it.
  if ((u64)wanted / VECTOR % THREADS == threadIdx.x) store(out[wanted * p.step[2]], (power(chosen - less) * share - (C)1) * dy);
#endif
}
#endif
