// Random numbers, the same bits as on the CPU (crates/cpu/src/random.rs, which explains the order
// of words): Philox4x32-10 over tiles of 64 blocks. Multiplications and additions are not fused.

FN void philox(u32 c[4], u32 k0, u32 k1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    if (round > 0) { k0 += 0x9E3779B9u; k1 += 0xBB67AE85u; }
    u32 a = __umulhi(c[0], 0xD2511F53u), al = c[0] * 0xD2511F53u;
    u32 b = __umulhi(c[2], 0xCD9E8D57u), bl = c[2] * 0xCD9E8D57u;
    c[0] = b ^ c[1] ^ k0; c[1] = bl; c[2] = a ^ c[3] ^ k1; c[3] = al;
  }
}
// The words of block l of a tile.
FN void words_of(const i64 key[2], u64 tile, u32 l, u32 c[4]) {
  u64 low = tile * 64;
  c[0] = (u32)low | l; c[1] = (u32)(low >> 32); c[2] = (u32)key[1]; c[3] = (u32)((u64)key[1] >> 32);
  philox(c, (u32)key[0], (u32)((u64)key[0] >> 32));
}
FN u64 joined(u32 low, u32 high) { return (u64)low | (u64)high << 32; }
FN i64 draw_bits(const i64 key[2], u64 i) {
  u32 c[4]; words_of(key, i / 128, i % 64, c);
  return (i64)(i % 128 < 64 ? joined(c[0], c[1]) : joined(c[2], c[3]));
}
FN double draw_uniform64(const i64 key[2], u64 i) {
  return (double)((u64)draw_bits(key, i) >> 11) * (1.0 / 9007199254740992.0);
}
// BITS bits: the most for which every value is a number of the dtype.
template <int BITS> FN float draw_uniform32(const i64 key[2], u64 i) {
  u32 c[4]; words_of(key, i / 256, i % 64, c);
  return (float)(int)(c[(i % 256) / 64] >> (32 - BITS)) * (1.f / (float)(1u << BITS));
}
FN float log_of(float x) {
  u32 bits = __float_as_uint(x) + (0x3F800000u - 0x3F3504F3u);
  int k = (int)(bits >> 23) - 127;
  float m = __uint_as_float((bits & 0x007FFFFFu) + 0x3F3504F3u);
  float s = (m - 1.f) / (m + 1.f), z = s * s;
  float tail = z * (1.f / 3.f + z * (1.f / 5.f + z * (1.f / 7.f + z * (1.f / 9.f))));
  return (float)k * 0.693147180559945309417f + 2.f * (s + s * tail);
}
FN double log_of(double x) {
  const u64 cut = 0x3FE6A09E667F3BCDull;
  u64 bits = (u64)__double_as_longlong(x) + (0x3FF0000000000000ull - cut);
  int k = (int)(bits >> 52) - 1023;
  double m = __longlong_as_double((i64)((bits & 0x000FFFFFFFFFFFFFull) + cut));
  double s = (m - 1.0) / (m + 1.0), z = s * s, tail = 1.0 / 21.0;
#pragma unroll
  for (int d = 19; d >= 3; d -= 2) tail = 1.0 / (double)d + z * tail;
  return (double)k * 0.693147180559945309417 + 2.0 * (s + s * (z * tail));
}
FN void turned(float turn, float& s, float& c) {
  float quarter = (turn * 4.f + 12582912.f) - 12582912.f;
  float x = (turn - quarter * 0.25f) * 6.28318530717958647693f, z = x * x;
  float sine = x + x * (z * (-1.f / 6.f + z * (1.f / 120.f + z * (-1.f / 5040.f + z * (1.f / 362880.f)))));
  float cosine = 1.f + z * (-0.5f + z * (1.f / 24.f + z * (-1.f / 720.f + z * (1.f / 40320.f))));
  int q = (int)quarter;
  s = (q & 1) == 0 ? sine : cosine; c = (q & 1) == 0 ? cosine : sine;
  s = (q & 2) == 0 ? s : -s; c = ((q + 1) & 2) == 0 ? c : -c;
}
FN void turned(double turn, double& s, double& c) {
  double shifted = turn * 4.0 + 6755399441055744.0, quarter = shifted - 6755399441055744.0;
  double x = (turn - quarter * 0.25) * 6.28318530717958647693, z = x * x;
  double sine = 1.0 / 355687428096000.0, cosine = 1.0 / 20922789888000.0;
  const double a[7] = {-1307674368000.0, 6227020800.0, -39916800.0, 362880.0, -5040.0, 120.0, -6.0};
  const double b[7] = {-87178291200.0, 479001600.0, -3628800.0, 40320.0, -720.0, 24.0, -2.0};
#pragma unroll
  for (int i = 0; i < 7; i++) { sine = 1.0 / a[i] + z * sine; cosine = 1.0 / b[i] + z * cosine; }
  sine = x + x * (z * sine); cosine = 1.0 + z * cosine;
  u64 q = (u64)__double_as_longlong(shifted);
  s = (q & 1) == 0 ? sine : cosine; c = (q & 1) == 0 ? cosine : sine;
  s = (q & 2) == 0 ? s : -s; c = ((q + 1) & 2) == 0 ? c : -c;
}
FN float draw_normal32(const i64 key[2], u64 i) {
  u32 c[4]; words_of(key, i / 256, i % 64, c);
  u32 half = (i % 256) / 128;
  u32 first = c[2 * half], second = c[2 * half + 1];
  float u = ((float)(int)(first >> 1) + 0.5f) * (1.f / 2147483648.f);
  float turn = (float)((int)second >> 8) * (1.f / 16777216.f);
  float radius = sqrtf(-2.f * log_of(u)), s, co;
  turned(turn, s, co);
  return radius * (i % 128 < 64 ? co : s);
}
FN double draw_normal64(const i64 key[2], u64 i) {
  u32 c[4]; words_of(key, i / 128, i % 64, c);
  double u = ((double)(joined(c[0], c[1]) >> 12) + 0.5) * (1.0 / 4503599627370496.0);
  double turn = (double)(joined(c[2], c[3]) >> 11) * (1.0 / 9007199254740992.0) - 0.5;
  double radius = sqrt(-2.0 * log_of(u)), s, co;
  turned(turn, s, co);
  return radius * (i % 128 < 64 ? co : s);
}
