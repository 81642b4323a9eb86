// Connectionist temporal classification: a block for each sample, a thread for every so manyth
// place. `C` is the type in which it is computed; all operands are dense, floats of that type.
//
// With VJP there is a cotangent, and `out` is that of the log-probabilities; otherwise the losses.
// `lines` has t + 2 lines of `line` numbers for each sample: alpha of every time, and beta.

struct Ctc {
  u64 x, labels, times, counts, dy, out, lines, fault;
  u64 t, n, c, most, blank, line, call;
};

FN C log_sum(C a, C b, C c) {
  C most = a > b ? a : b;
  most = c > most ? c : most;
  const C shift = most == -(C)INF ? (C)0 : most;
  return log(exp(a - shift) + exp(b - shift) + exp(c - shift)) + shift;
}

extern "C" __global__ void __launch_bounds__(128) k(Ctc p) {
  const u64 sample = blockIdx.x;
  const C never = -(C)INF;
  const i64* labels = (const i64*)p.labels + sample * p.most;
  i64 times = ((const i64*)p.times)[sample], count = ((const i64*)p.counts)[sample];
  times = times < 0 ? 0 : times > (i64)p.t ? (i64)p.t : times;
  count = count < 0 ? 0 : count > (i64)p.most ? (i64)p.most : count;
  int wrong = 0;
  for (i64 i = threadIdx.x; i < count; i += blockDim.x) {
    if (labels[i] < 0 || labels[i] >= (i64)p.c) {
      report((Fault*)p.fault, (u32)p.call, sample * p.most + i, labels[i], (i64)p.c);
      wrong = 1;
    }
  }
  if (__syncthreads_or(wrong)) return;
  const i64 places = 2 * count + 1;
#define CLASS(s) ((s) % 2 ? labels[(s) / 2] : (i64)p.blank)
#define JUMPS(s) ((s) % 2 && (s) > 2 && labels[(s) / 2] != labels[(s) / 2 - 1])
#define X(t, k) ((const C*)p.x)[((u64)(t) * p.n + sample) * p.c + (k)]
  C* lines = (C*)p.lines + sample * (p.t + 2) * p.line;
  for (i64 t = 0; t < times; t++) {
    const C* before = lines + (t - 1) * (i64)p.line;
    C* now = lines + t * (i64)p.line;
    for (i64 s = threadIdx.x; s < places; s += blockDim.x) {
      C sum = s < 2 ? (C)0 : never;
      if (t > 0)
        sum = log_sum(before[s], s > 0 ? before[s - 1] : never, JUMPS(s) ? before[s - 2] : never);
      now[s] = sum + X(t, CLASS(s));
    }
    __syncthreads();
  }
  const C* last = lines + (times - 1) * (i64)p.line;
  C total = places == 1 ? (C)0 : never;
  if (times > 0)
    total = log_sum(last[places - 1], places > 1 ? last[places - 2] : never, never);
#ifndef VJP
  if (threadIdx.x == 0) ((C*)p.out)[sample] = -total;
#else
  const C dy = ((const C*)p.dy)[sample];
  for (u64 i = threadIdx.x; i < p.t * p.c; i += blockDim.x)
    ((C*)p.out)[(i / p.c * p.n + sample) * p.c + i % p.c] = 0;
  __syncthreads();
  if (total == never) return;
  C* of_beta[2] = {lines + p.t * p.line, lines + (p.t + 1) * p.line};
  for (i64 t = times - 1; t >= 0; t--) {
    const C* after = of_beta[(t + 1) % 2];
    C* beta = of_beta[t % 2];
    const C* alpha = lines + t * (i64)p.line;
    for (i64 s = threadIdx.x; s < places; s += blockDim.x) {
      C sum = s + 2 >= places ? (C)0 : never;
      if (t + 1 < times) {
        const C stay = after[s] + X(t + 1, CLASS(s));
        const C one = s + 1 < places ? after[s + 1] + X(t + 1, CLASS(s + 1)) : never;
        const bool jumps = s + 2 < places && JUMPS(s + 2);
        sum = log_sum(stay, one, jumps ? after[s + 2] + X(t + 1, CLASS(s + 2)) : never);
      }
      beta[s] = sum;
    }
    __syncthreads();
    // A class is one thread's: its places are added in order.
    C* to = (C*)p.out + ((u64)t * p.n + sample) * p.c;
    for (u64 k = threadIdx.x; k < p.c; k += blockDim.x) {
      C sum = 0;
      if (k == p.blank)
        for (i64 s = 0; s < places; s += 2) sum += exp(alpha[s] + beta[s] - total);
      for (i64 s = 1; s < places; s += 2)
        if (labels[s / 2] == (i64)k) sum += exp(alpha[s] + beta[s] - total);
      to[k] = -dy * sum;
    }
  }
#endif
}
