//! Days of the Gregorian calendar, from and to days since 1970-01-01 UTC.

/// Seconds of a day. Leap seconds are in no count here, as in POSIX's.
pub const DAY_S: u64 = 86_400;

/// From the first of March of the year 0 to 1970-01-01, in days.
const TO_1970: i64 = 719_468;

/// Days of 400 years, after which the calendar repeats itself.
const ERA: i64 = 146_097;

/// A day of the Gregorian calendar, also of times before it was in use.
///
/// ```
/// use linerate_base::CalendarDay;
///
/// let day = CalendarDay { year: 2024, month: 2, day: 29 };
/// assert_eq!(day.since_1970(), 19_782);
/// assert_eq!((CalendarDay::at(19_782), day.of_year(), day.to_string().as_str()), (day, 60, "2024-02-29"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CalendarDay {
    /// The year; 0 is the one before the year 1.
    pub year: i64,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
}

impl CalendarDay {
    /// So many days after 1970-01-01. Years begin in March here, so that a leap day is the last.
    pub fn at(since_1970: i64) -> CalendarDay {
        let days = since_1970 + TO_1970;
        let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        // (153 m + 2) / 5: days before month m. Months have 31 and 30 days in turn, in groups of five.
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + i64::from(month <= 2);
        CalendarDay { year, month: month as u8, day: day as u8 }
    }

    /// Days since 1970-01-01. A day beyond the end of its month is one of the next.
    pub fn since_1970(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((i64::from(self.month) + 9) % 12) + 2) / 5 + i64::from(self.day) - 1;
        era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - TO_1970
    }

    /// The day of the year, from 1.
    pub fn of_year(self) -> u16 {
        let first = CalendarDay { year: self.year, month: 1, day: 1 };
        (self.since_1970() - first.since_1970() + 1) as u16
    }
}

impl std::fmt::Display for CalendarDay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each day of 800 years follows the one before as the calendar's rules say.
    #[test]
    fn days_follow_each_other() {
        let mut last = CalendarDay::at(-146_098);
        for days in -146_097..146_097 {
            let day = CalendarDay::at(days);
            assert_eq!(day.since_1970(), days);
            let leap = last.year % 4 == 0 && (last.year % 100 != 0 || last.year % 400 == 0);
            let length = match last.month {
                2 => 28 + u8::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let next = match (last.day == length, last.month) {
                (false, _) => CalendarDay { day: last.day + 1, ..last },
                (true, 12) => CalendarDay { year: last.year + 1, month: 1, day: 1 },
                (true, month) => CalendarDay { month: month + 1, day: 1, ..last },
            };
            assert_eq!(day, next, "{days}");
            let of_year = if (day.month, day.day) == (1, 1) { 1 } else { last.of_year() + 1 };
            assert_eq!(day.of_year(), of_year, "{day}");
            last = day;
        }
        assert_eq!(CalendarDay::at(0).to_string(), "1970-01-01");
        assert_eq!(CalendarDay::at(47_541).to_string(), "2100-03-01");
    }
}
