/* WRF's dates, YYYY-MM-DD_HH:MM:SS (proleptic Gregorian). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { DATE_LENGTH = 19 };

/* Seconds since 1970-01-01 00:00:00. False when `text` is no such date. */
bool read_date(const char text[DATE_LENGTH], int64_t* seconds);
/* Writes 19 characters and a NUL. */
void write_date(int64_t seconds, char text[DATE_LENGTH + 1]);
