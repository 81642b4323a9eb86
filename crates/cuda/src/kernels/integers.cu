// Integers wrap; dividing by zero gives zero.
FN i64 u_same(i64 x) { return x; }
FN i64 u_neg(i64 x) { return (i64)(0ull - (u64)x); }
FN i64 u_abs(i64 x) { return x < 0 ? u_neg(x) : x; }
FN i64 u_sign(i64 x) { return (x > 0) - (x < 0); }
FN i64 u_not(i64 x) { return ~x; }
FN i64 u_square(i64 x) { return (i64)((u64)x * (u64)x); }
FN i64 u_relu(i64 x) { return x < 0 ? 0 : x; }
FN i64 b_add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
FN i64 b_sub(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
FN i64 b_mul(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
FN i64 b_div(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? u_neg(a) : a / b; }
FN i64 b_fmod(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
FN i64 b_remainder(i64 a, i64 b) { i64 r = b_fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
FN i64 b_floor_div(i64 a, i64 b) { i64 r = b_fmod(a, b), q = b_div(a, b); return b != 0 && r != 0 && (r < 0) != (b < 0) ? q - 1 : q; }
FN i64 b_pow(i64 a, i64 b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? 1 - 2 * (b & 1) : 0;
  u64 result = 1, base = (u64)a;
  for (u64 left = (u64)b; left > 0; left >>= 1) { if (left & 1) result *= base; base *= base; }
  return (i64)result;
}
FN i64 b_maximum(i64 a, i64 b) { return a > b ? a : b; }
FN i64 b_minimum(i64 a, i64 b) { return a < b ? a : b; }
FN i64 b_and(i64 a, i64 b) { return a & b; }
FN i64 b_or(i64 a, i64 b) { return a | b; }
FN i64 b_xor(i64 a, i64 b) { return a ^ b; }
FN i64 b_shift_left(i64 a, i64 b) { return (u64)b > 63 ? 0 : (i64)((u64)a << b); }
FN i64 b_shift_right(i64 a, i64 b) { return a >> ((u64)b > 63 ? 63 : b); }
FN i64 b_gcd(i64 a, i64 b) {
  u64 x = (u64)u_abs(a), y = (u64)u_abs(b);
  while (y != 0) { u64 r = x % y; x = y; y = r; }
  return (i64)x;
}
