//! HTTP dates (RFC 9110 section 5.6.7). The caller supplies the time.

use linerate_base::{CalendarDay, DAY_S};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date as a field value: `Sun, 06 Nov 1994 08:49:37 GMT`. It is made once a second and copied
/// into every response.
///
/// ```
/// use linerate_http::server::HttpDate;
///
/// let date = HttpDate::from_unix(784_111_777);
/// assert_eq!(date.as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
/// assert_eq!(HttpDate::parse("Sun, 06 Nov 1994 08:49:37 GMT").map(|d| d.unix()), Some(784_111_777));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpDate {
    text: [u8; 29],
    seconds: u64,
}

impl HttpDate {
    /// From seconds since 1970. Years beyond 9999 become its end.
    pub fn from_unix(seconds: u64) -> HttpDate {
        let seconds = seconds.min(253_402_300_799);
        let (days, of_day) = (seconds / DAY_S, seconds % DAY_S);
        let CalendarDay { year, month, day } = CalendarDay::at(days as i64);
        let year = year as u64;
        let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
        text[..3].copy_from_slice(DAYS[(days % 7) as usize].as_bytes());
        text[8..11].copy_from_slice(MONTHS[usize::from(month - 1)].as_bytes());
        let mut two = |at: usize, n: u64| {
            text[at] = b'0' + (n / 10 % 10) as u8;
            text[at + 1] = b'0' + (n % 10) as u8;
        };
        two(5, u64::from(day));
        two(12, year / 100);
        two(14, year % 100);
        two(17, of_day / 3600);
        two(20, of_day / 60 % 60);
        two(23, of_day % 60);
        HttpDate { text, seconds }
    }

    /// Parses any of the three formats that a recipient must accept.
    pub fn parse(text: &str) -> Option<HttpDate> {
        let (day_name, rest) = text.split_once(' ')?;
        if !text.is_ascii() {
            return None;
        }
        let parts: Vec<&str> = rest.split_ascii_whitespace().collect();
        let (day, month, year, time) = match (day_name.strip_suffix(','), parts.as_slice()) {
            // Sun, 06 Nov 1994 08:49:37 GMT
            (Some(_), &[day, month, year, time, "GMT"]) => (day, month, year.parse().ok()?, time),
            // Sunday, 06-Nov-94 08:49:37 GMT
            (Some(_), &[date, time, "GMT"]) => {
                let mut d = date.split('-');
                let (day, month) = (d.next()?, d.next()?);
                let short: u64 = d.next()?.parse().ok()?;
                (day, month, if short < 70 { 2000 + short } else { 1900 + short }, time)
            }
            // Sun Nov  6 08:49:37 1994
            (None, &[month, day, time, year]) => (day, month, year.parse().ok()?, time),
            _ => return None,
        };
        let month = MONTHS.iter().position(|m| *m == month)? as u8 + 1;
        let day: u8 = day.parse().ok().filter(|d| (1..=31).contains(d))?;
        let mut clock = time.split(':').map(|n| n.parse::<u64>().ok());
        let (h, m, s) = (clock.next()??, clock.next()??, clock.next()??);
        if h > 23 || m > 59 || s > 60 || clock.next().is_some() || !(1970..=9999).contains(&year) {
            return None;
        }
        let days = CalendarDay { year: year as i64, month, day }.since_1970() as u64;
        Some(HttpDate::from_unix(days * DAY_S + h * 3600 + m * 60 + s))
    }

    /// Seconds since 1970.
    pub fn unix(&self) -> u64 {
        self.seconds
    }

    /// As bytes.
    pub fn as_bytes(&self) -> &[u8; 29] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_formats_mean_the_same() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            let date = HttpDate::parse(text).map(|d| d.unix());
            assert_eq!(date, Some(784_111_777), "{text}");
        }
        assert_eq!(HttpDate::from_unix(784_111_777).as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        for bad in [
            "",
            "x",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 25:00:00 GMT",
            "not-a-date at all x y",
            "Sun, 00 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(HttpDate::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_day_comes_back() {
        for day in 0..60_000 {
            let date = HttpDate::from_unix(day * 86_400 + 3_661);
            let text = std::str::from_utf8(date.as_bytes()).unwrap();
            assert_eq!(HttpDate::parse(text), Some(date), "{text}");
        }
        assert_eq!(HttpDate::from_unix(951_782_400).as_bytes(), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(HttpDate::from_unix(u64::MAX).as_bytes(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
