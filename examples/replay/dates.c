#include "dates.h"

#include <stdio.h>
#include <string.h>

static bool leap(int64_t year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int days_in(int64_t year, int month) {
  static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && leap(year) ? 29 : days[month - 1];
}

/* Days from 0001-01-01 to the first of January of `year`. */
static int64_t days_before(int64_t year) {
  const int64_t y = year - 1;
  return y * 365 + y / 4 - y / 100 + y / 400;
}

static int64_t epoch(void) {
  return days_before(1970);
}

bool read_date(const char text[DATE_LENGTH], int64_t* seconds) {
  char copy[DATE_LENGTH + 1];
  memcpy(copy, text, DATE_LENGTH);
  copy[DATE_LENGTH] = '\0';
  int year, month, day, hour, minute, second, read = 0;
  if (sscanf(copy, "%4d-%2d-%2d_%2d:%2d:%2d%n", &year, &month, &day, &hour, &minute, &second, &read) != 6 ||
      read != DATE_LENGTH || year < 1 || month < 1 || month > 12 || day < 1 || day > days_in(year, month) ||
      hour > 23 || minute > 59 || second > 60) {
    return false;
  }
  int64_t days = days_before(year) - epoch() + day - 1;
  for (int m = 1; m < month; ++m) days += days_in(year, m);
  *seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
  return true;
}

void write_date(int64_t seconds, char text[DATE_LENGTH + 1]) {
  int64_t days = seconds / 86400, rest = seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  days += epoch();
  int64_t year = days / 366 + 1;
  while (days_before(year + 1) <= days) ++year;
  int64_t day = days - days_before(year);
  int month = 1;
  while (day >= days_in(year, month)) day -= days_in(year, month++);
  char wide[80];
  snprintf(wide, sizeof wide, "%04d-%02d-%02d_%02d:%02d:%02d", (int)(year % 10000), month, (int)day + 1,
           (int)(rest / 3600), (int)(rest / 60 % 60), (int)(rest % 60));
  memcpy(text, wide, DATE_LENGTH);
  text[DATE_LENGTH] = '\0';
}
