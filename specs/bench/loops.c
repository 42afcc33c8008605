/* loops.c: the C loops that LuaJIT is measured against, compiled with gcc -O2. */
double loops_sum_rows(const float *data, long rows, long columns);

double loops_sum_rows(const float *data, long rows, long columns) {
  double sum = 0;
  for (long i = 0; i < rows; i++) {
    const float *row = data + i * columns;
    for (long j = 0; j < columns; j++) sum += (double)row[j];
  }
  return sum;
}
