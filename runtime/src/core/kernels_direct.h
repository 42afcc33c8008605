/* kernels_direct.h: loops from one number type straight to another, for pairs whose two loops by way of a pivot take
 * longer than memory that is in a cache, and the table of those pairs. Included by kernels_convert.h, whose invariant
 * they keep. */

/* Integers of 8 bits, and what a bool is in memory. */
LOOP(byte_to_bool, uint8_t, uint8_t, x != 0)

LOOP(bool_to_long, uint8_t, int64_t, x != 0)
LOOP(i8_to_long, int8_t, int64_t, x)
LOOP(u8_to_long, uint8_t, int64_t, x)
LOOP(i16_to_long, int16_t, int64_t, x)
LOOP(u16_to_long, uint16_t, int64_t, x)

LOOP(bool_to_f64, uint8_t, double, x != 0 ? 1.0 : 0.0)
LOOP(i8_to_f64, int8_t, double, x)
LOOP(u8_to_f64, uint8_t, double, x)
LOOP(i16_to_f64, int16_t, double, x)
LOOP(u16_to_f64, uint16_t, double, x)

LOOP(u32_to_f32, uint32_t, float, (float)x)

/* Of integers of up to 16 bits. */
#define OF_SHORT(from)                                                                               \
  [MF__N_I64] = (from##_to_long), [MF__N_U64] = (from##_to_long), [MF__N_F64] = (from##_to_f64),     \
  [MF__N_BF16] = (from##_to_bf16)
#define DIRECT_LOOPS                                                                                 \
  {                                                                                                  \
    [MF__N_BOOL] = {[MF__N_I8] = byte_to_bool, [MF__N_U8] = byte_to_bool, OF_SHORT(bool)},           \
    [MF__N_I8] = {[MF__N_BOOL] = byte_to_bool, OF_SHORT(i8)},                                        \
    [MF__N_U8] = {[MF__N_BOOL] = byte_to_bool, OF_SHORT(u8)},                                        \
    [MF__N_I16] = {OF_SHORT(i16)},                                                                   \
    [MF__N_U16] = {OF_SHORT(u16)},                                                                   \
    [MF__N_I32] = {[MF__N_BF16] = i32_to_bf16},                                                      \
    [MF__N_U32] = {[MF__N_BF16] = u32_to_bf16, [MF__N_F32] = u32_to_f32},                            \
    [MF__N_BF16] = {[MF__N_BOOL] = bf16_to_bool, [MF__N_I8] = bf16_to_i8, [MF__N_U8] = bf16_to_u8,   \
                    [MF__N_I16] = bf16_to_i16, [MF__N_U16] = bf16_to_u16, [MF__N_I32] = bf16_to_i32, \
                    [MF__N_U32] = bf16_to_u32, [MF__N_F64] = bf16_to_f64},                           \
  }
