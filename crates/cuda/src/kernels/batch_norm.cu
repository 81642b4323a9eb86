// Batch norm: statistics of channels by parts, one order of merging them, then one pass over the
// elements. `E` is the element, `C` its compute type, `W` that of weights and their gradients, `M`
// that of given statistics. `LAST`: rows with an element of each channel; otherwise images of
// lines, one for each channel. `VEC` elements are read at once: they divide what is contiguous of a
// channel, or the channels. `ALIGNED`: a vector of all elements is within a line.

struct Norm {
  u64 p[8];
  u64 n, c, line;     // images, channels, elements of a line; rows, channels, 1
  u64 each, parts;    // images or rows of a part
  u64 across, down;   // blocks of columns, and vectors of a block side by side (LAST)
  double eps;
};
#define BLOCK 256
#define BATCH 4
#define BATCHES 2
struct alignas(VEC * sizeof(E)) V { E e[VEC]; };
FN C at(const Norm& w, int p, u64 k) { return ((const C*)w.p[p])[k]; }
FN u64 least(u64 a, u64 b) { return a < b ? a : b; }

// Mean, and squared distances from it, of `n` elements. Merging cancels nothing.
struct Moments { C mean, squares, n; };
FN Moments merged(Moments a, Moments b) {
  C n = a.n + b.n, d = b.mean - a.mean;
  if (b.n == 0) return a;
  if (a.n == 0) return b;
  return {a.mean + d * (b.n / n), a.squares + b.squares + d * d * (a.n * (b.n / n)), n};
}
// From sums of distances from a pivot, and of their squares.
FN Moments moments(C pivot, C sum, C squares, C n) {
  if (n == 0) return {0, 0, 0};
  C off = sum / n, left = squares - sum * off;
  return {pivot + off, left < 0 ? (C)0 : left, n};
}
FN Moments from_lane(Moments a, int o) {
  return {__shfl_down_sync(~0u, a.mean, o), __shfl_down_sync(~0u, a.squares, o), __shfl_down_sync(~0u, a.n, o)};
}
FN Moments over_warp(Moments a) {
#pragma unroll
  for (int o = 16; o; o >>= 1) a = merged(a, from_lane(a, o));
  return a;
}
struct Two { C a, b; };
FN Two over_warp(Two x) {
#pragma unroll
  for (int o = 16; o; o >>= 1) {
    x.a += __shfl_down_sync(~0u, x.a, o);
    x.b += __shfl_down_sync(~0u, x.b, o);
  }
  return x;
}

#if defined(STATISTICS) || defined(SUMS)
#ifdef STATISTICS
// What a thread has of one channel.
struct Share {
  C pivot, sum, squares;
  FN void start(C x) { pivot = x; sum = 0; squares = 0; }
  FN void add(C x) { C d = x - pivot; sum += d; squares += d * d; }
};
typedef Moments Whole;
FN Whole whole(Share s, C n) { return moments(s.pivot, s.sum, s.squares, n); }
FN Whole both(Whole a, Whole b) { return merged(a, b); }
FN void keep(const Norm& w, u64 k, Whole x) { ((C*)w.p[1])[k] = x.mean; ((C*)w.p[1])[w.parts * w.c + k] = x.squares; }
#else
struct Share {
  C mean, shift, slope;
  FN void start(C m) { mean = m; shift = 0; slope = 0; }
  FN void add(C x, C dy) { shift += dy; slope += dy * (x - mean); }
};
typedef Two Whole;
FN Whole whole(Share s, C) { return {s.shift, s.slope}; }
FN Whole both(Whole a, Whole b) { return {a.a + b.a, a.b + b.b}; }
FN void keep(const Norm& w, u64 k, Whole x) { ((C*)w.p[3])[k] = x.a; ((C*)w.p[3])[w.parts * w.c + k] = x.b; }
#endif

extern "C" __global__ void __launch_bounds__(BLOCK) k(Norm w) {
  const E* x = (const E*)w.p[0];
#ifdef SUMS
  const E* dy = (const E*)w.p[1];
#endif
#if LAST
  const u32 down = (u32)w.down, tx = threadIdx.x % down, ty = threadIdx.x / down, step = BLOCK / down;
  const u64 column = (blockIdx.x % w.across) * down + tx, part = blockIdx.x / w.across;
  const u64 from = part * w.each + ty, to = least(w.n, (part + 1) * w.each), c = column * VEC;
  const bool in = c < w.c;
  Share s[VEC];
  u64 row = from;
  C n = 0;
#pragma unroll
  for (int e = 0; e < VEC; e++) {
#ifdef STATISTICS
    s[e].start(in && from < to ? load(x[from * w.c + c + e]) : (C)0);
#else
    s[e].start(in ? (C)load(((const M*)w.p[2])[c + e]) : (C)0);
#endif
  }
  while (in && row < to) {
    V v[BATCH];
#ifdef SUMS
    V g[BATCH];
#endif
    u64 next = row;
#pragma unroll
    for (int u = 0; u < BATCH; u++, next += step) {
      if (next >= to) continue;
      v[u] = *(const V*)(x + next * w.c + c);
#ifdef SUMS
      g[u] = *(const V*)(dy + next * w.c + c);
#endif
    }
#pragma unroll
    for (int u = 0; u < BATCH; u++, row += step) {
      if (row >= to) continue;
      n += 1;
#pragma unroll
      for (int e = 0; e < VEC; e++) {
#ifdef SUMS
        s[e].add(load(v[u].e[e]), load(g[u].e[e]));
#else
        s[e].add(load(v[u].e[e]));
#endif
      }
    }
  }
  __shared__ Whole shares[BLOCK];
#pragma unroll 1
  for (int e = 0; e < VEC; e++) {
    Whole mine = whole(s[0], n);
#pragma unroll
    for (int f = 1; f < VEC; f++) if (e == f) mine = whole(s[f], n);
    __syncthreads();
    shares[threadIdx.x] = mine;
    for (u32 o = step / 2; o; o >>= 1) {
      __syncthreads();
      if (ty < o) shares[threadIdx.x] = both(shares[threadIdx.x], shares[threadIdx.x + o * down]);
    }
    if (ty == 0 && in) keep(w, (c + e) * w.parts + part, shares[threadIdx.x]);
  }
#else
  const u64 channel = blockIdx.x % w.c, part = blockIdx.x / w.c, image = w.c * w.line;
  const u64 first = part * w.each;
  const u32 images = (u32)(least(w.n, first + w.each) - first), vectors = (u32)(w.line / VEC);
  const u64 start = (first * w.c + channel) * w.line;
  x += start;
#ifdef SUMS
  dy += start;
#endif
  u32 i = threadIdx.x / vectors, j = threadIdx.x % vectors;
  const u32 di = BLOCK / vectors, dj = BLOCK % vectors;
  Share s;
  C n = 0;
#ifdef STATISTICS
  s.start(i < images ? load(x[i * image + j * VEC]) : (C)0);
#else
  s.start((C)load(((const M*)w.p[2])[channel]));
#endif
  while (i < images) {
    V v[BATCH];
#ifdef SUMS
    V g[BATCH];
#endif
    bool in[BATCH];
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
      in[u] = i < images;
      if (in[u]) {
        v[u] = *(const V*)(x + i * image + j * VEC);
#ifdef SUMS
        g[u] = *(const V*)(dy + i * image + j * VEC);
#endif
      }
      i += di; j += dj;
      if (j >= vectors) { j -= vectors; i++; }
    }
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
      if (!in[u]) continue;
      n += VEC;
#pragma unroll
      for (int e = 0; e < VEC; e++) {
#ifdef SUMS
        s.add(load(v[u].e[e]), load(g[u].e[e]));
#else
        s.add(load(v[u].e[e]));
#endif
      }
    }
  }
  __shared__ Whole warps[BLOCK / 32];
  Whole all = over_warp(whole(s, n));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = all;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < BLOCK / 32; k++) all = both(all, warps[k]);
    keep(w, channel * w.parts + part, all);
  }
#endif
}
#endif

// A warp for each channel merges the parts, and leaves what the pass over the elements needs.
#ifdef MERGE_STATISTICS
extern "C" __global__ void __launch_bounds__(BLOCK) k(Norm w) {
  const u64 channel = ((u64)blockIdx.x * BLOCK + threadIdx.x) / 32;
  const u32 lane = threadIdx.x % 32;
  if (channel >= w.c) return;
  // The mean from the distances of those of parts from the first: equal ones stay as they are.
  const u64 first = channel * w.parts, squares = w.parts * w.c + first;
  const C n = (C)(w.n * w.line), pivot = at(w, 0, first);
  auto count = [&](u64 part) { return (C)((least(w.n, (part + 1) * w.each) - part * w.each) * w.line); };
  Two off = {0, 0};
  for (u64 part = lane; part < w.parts; part += 32) off.a += count(part) * (at(w, 0, first + part) - pivot);
  const C mean = pivot + __shfl_sync(~0u, over_warp(off).a, 0) / n;
  Two all = {0, 0};
  for (u64 part = lane; part < w.parts; part += 32) {
    const C d = at(w, 0, first + part) - mean;
    all.a += at(w, 0, squares + part);
    all.b += count(part) * (d * d);
  }
  all = over_warp(all);
  if (lane != 0) return;
  const C variance = (all.a + all.b) / n;
  ((C*)w.p[3])[channel] = mean;
  ((C*)w.p[4])[channel] = variance;
  C* to = (C*)w.p[5] + channel;
  to[0] = mean;
  to[w.c] = (C)load(((const W*)w.p[1])[channel]) * u_rsqrt(variance + (C)w.eps);
  to[2 * w.c] = (C)load(((const W*)w.p[2])[channel]);
}
#endif
#ifdef MERGE_SUMS
extern "C" __global__ void __launch_bounds__(BLOCK) k(Norm w) {
  const u64 channel = ((u64)blockIdx.x * BLOCK + threadIdx.x) / 32;
  const u32 lane = threadIdx.x % 32;
  if (channel >= w.c) return;
  Two all = {0, 0};
  for (u64 part = lane; part < w.parts; part += 32) {
    const u64 k = channel * w.parts + part;
    all.a += at(w, 0, k);
    all.b += at(w, 0, w.parts * w.c + k);
  }
  all = over_warp(all);
  if (lane != 0) return;
  const C n = (C)(w.n * w.line), by = u_rsqrt((C)load(((const M*)w.p[3])[channel]) + (C)w.eps);
  const C dw = all.b * by;
  store(((W*)w.p[4])[channel], dw);
  store(((W*)w.p[5])[channel], all.a);
  C* to = (C*)w.p[6] + channel;
  to[0] = (C)load(((const M*)w.p[2])[channel]);
  to[w.c] = (C)load(((const W*)w.p[1])[channel]) * by;
  to[2 * w.c] = all.a / n;
  to[3 * w.c] = by * (dw / n);
}
#endif

// One pass over the elements.
#if defined(NORMALISE) || defined(SLOPES)
// Numbers of adjacent channels.
struct alignas(VEC * sizeof(C) < 16 ? VEC * sizeof(C) : 16) Many { C e[VEC]; };
FN Many many(const Norm& w, int p, u64 k) { return *(const Many*)((const C*)w.p[p] + k); }
#ifdef NORMALISE
struct Channel {
  C mean, by, bias;
  FN void get(const Norm& w, u64 c) { mean = at(w, 2, c); by = at(w, 2, w.c + c); bias = at(w, 2, 2 * w.c + c); }
  FN C of(C x) const { return (x - mean) * by + bias; }
};
FN void get(const Norm& w, u64 c, Channel* to) {
  const Many mean = many(w, 2, c), by = many(w, 2, w.c + c), bias = many(w, 2, 2 * w.c + c);
#pragma unroll
  for (int e = 0; e < VEC; e++) to[e] = {mean.e[e], by.e[e], bias.e[e]};
}
#define TO 1
#define OF(e) load(v.e[e])
#else
struct Channel {
  C mean, by, shift, slope;
  FN void get(const Norm& w, u64 c) {
    mean = at(w, 3, c); by = at(w, 3, w.c + c); shift = at(w, 3, 2 * w.c + c); slope = at(w, 3, 3 * w.c + c);
  }
  FN C of(C x, C dy) const { return by * (dy - shift - (x - mean) * slope); }
};
FN void get(const Norm& w, u64 c, Channel* to) {
  const Many mean = many(w, 3, c), by = many(w, 3, w.c + c), shift = many(w, 3, 2 * w.c + c), slope = many(w, 3, 3 * w.c + c);
#pragma unroll
  for (int e = 0; e < VEC; e++) to[e] = {mean.e[e], by.e[e], shift.e[e], slope.e[e]};
}
#define TO 2
#define OF(e) load(v.e[e]), load(g.e[e])
#endif

extern "C" __global__ void __launch_bounds__(BLOCK) k(Norm w) {
  const E* x = (const E*)w.p[0];
#ifdef SLOPES
  const E* dy = (const E*)w.p[1];
#endif
  E* to = (E*)w.p[TO];
#if LAST
  const u32 down = (u32)w.down, tx = threadIdx.x % down, ty = threadIdx.x / down, step = BLOCK / down;
  const u64 c = ((blockIdx.x % w.across) * down + tx) * VEC;
  if (c >= w.c) return;
  u64 row = blockIdx.x / w.across * (BATCHES * BATCH * step) + ty;
  Channel of[VEC];
  get(w, c, of);
#pragma unroll 1
  for (int batch = 0; batch < BATCHES; batch++) {
    V all[BATCH];
#ifdef SLOPES
    V slopes[BATCH];
#endif
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
      const u64 from = (row + u * step) * w.c + c;
      if (row + u * step >= w.n) continue;
      all[u] = *(const V*)(x + from);
#ifdef SLOPES
      slopes[u] = *(const V*)(dy + from);
#endif
    }
#pragma unroll
    for (int u = 0; u < BATCH; u++, row += step) {
      if (row >= w.n) continue;
      const V v = all[u];
#ifdef SLOPES
      const V g = slopes[u];
#endif
      V y;
#pragma unroll
      for (int e = 0; e < VEC; e++) store(y.e[e], of[e].of(OF(e)));
      *(V*)(to + row * w.c + c) = y;
    }
  }
#else
  const u64 first = ((u64)blockIdx.x * BLOCK + threadIdx.x) * VEC;
  if (first >= w.n * w.c * w.line) return;
  const V v = *(const V*)(x + first);
#ifdef SLOPES
  const V g = *(const V*)(dy + first);
#endif
  const u64 line = WIDE ? first / w.line : (u32)first / (u32)w.line;
  u64 channel = WIDE ? line % w.c : (u32)line % (u32)w.c;
  Channel of;
  of.get(w, channel);
  V y;
  u64 left = w.line - (first - line * w.line);
#pragma unroll
  for (int e = 0; e < VEC; e++) {
    if (!ALIGNED && left == 0) {
      channel = channel + 1 == w.c ? 0 : channel + 1;
      of.get(w, channel);
      left = w.line;
    }
    store(y.e[e], of.of(OF(e)));
    left--;
  }
  *(V*)(to + first) = y;
#endif
}
#endif
