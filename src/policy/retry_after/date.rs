//! HTTP-date (RFC 9110 section 5.6.7): its three forms, always UTC.
//!
//! The forms are brought into the first, IMF-fixdate, which `httpdate` then checks to the letter and
//! turns into a time. What it would refuse or misread is mended on the way: two-digit years, leap
//! seconds, and years before 1970.

use std::{
    ops::Range,
    str,
    time::{Duration, SystemTime},
};

/// A two-digit year may be this far in the future (RFC 9110 section 5.6.7).
const YEARS_AHEAD: u16 = 50;

/// After 400 years the calendar repeats itself, days of the week included.
const CYCLE_YEARS: u16 = 400;
const CYCLE: Duration = Duration::from_secs(146_097 * 24 * 60 * 60);

/// The last second that `httpdate` can write, that of the year 9999.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

const DAYS: [&[u8]; 7] = [
    b"Monday",
    b"Tuesday",
    b"Wednesday",
    b"Thursday",
    b"Friday",
    b"Saturday",
    b"Sunday",
];
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Reads an HTTP-date. `now` decides the century of a two-digit year, and nothing else.
pub(super) fn parse(text: &[u8], now: SystemTime) -> Option<SystemTime> {
    let imf = match text.len() {
        29 => Fixdate(text.try_into().ok()?),
        24 => from_asctime(text)?,
        _ => from_rfc850(text, now)?,
    };
    imf.into_time()
}

/// Reads `Sun Nov  6 08:49:37 1994`.
fn from_asctime(text: &[u8]) -> Option<Fixdate> {
    let (weekday, rest) = text.split_first_chunk::<3>()?;
    let [
        b' ',
        m1,
        m2,
        m3,
        b' ',
        d1,
        d2,
        b' ',
        time @ ..,
        b' ',
        y1,
        y2,
        y3,
        y4,
    ] = rest
    else {
        return None;
    };
    let d1 = if *d1 == b' ' { b'0' } else { *d1 };
    Fixdate::assemble(
        weekday,
        [d1, *d2],
        [*m1, *m2, *m3],
        [*y1, *y2, *y3, *y4],
        time,
    )
}

/// Reads `Sunday, 06-Nov-94 08:49:37 GMT`.
fn from_rfc850(text: &[u8], now: SystemTime) -> Option<Fixdate> {
    let comma = text.iter().position(|&byte| byte == b',')?;
    let (weekday, rest) = text.split_at(comma);
    if !DAYS.contains(&weekday) {
        return None;
    }
    #[rustfmt::skip]
    let [b',', b' ', d1, d2, b'-', m1, m2, m3, b'-', y1, y2, b' ', time @ .., b' ', b'G', b'M', b'T'] = rest
    else {
        return None;
    };
    let imf = Fixdate::assemble(
        &weekday[..3],
        [*d1, *d2],
        [*m1, *m2, *m3],
        [b'0', b'0', *y1, *y2],
        time,
    )?;
    imf.in_the_right_century(now)
}

/// A text of the shape `Sun, 06 Nov 1994 08:49:37 GMT`. Nothing is promised but its length: the
/// rest is checked when it becomes a time.
struct Fixdate([u8; 29]);

impl Fixdate {
    const DAY: Range<usize> = 5..7;
    const MONTH: Range<usize> = 8..11;
    const YEAR: Range<usize> = 12..16;
    const TIME: Range<usize> = 17..25;
    const SECOND: Range<usize> = 23..25;

    fn assemble(
        weekday: &[u8],
        day: [u8; 2],
        month: [u8; 3],
        year: [u8; 4],
        time: &[u8],
    ) -> Option<Self> {
        let text = [
            weekday, b", ", &day, b" ", &month, b" ", &year, b" ", time, b" GMT",
        ]
        .concat();
        text.try_into().ok().map(Self)
    }

    fn year(&self) -> Option<u16> {
        let text = &self.0[Self::YEAR];
        if !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        str::from_utf8(text).ok()?.parse().ok()
    }

    fn with_year(mut self, year: u16) -> Option<Self> {
        let text = format!("{year:04}");
        let digits: [u8; 4] = text.into_bytes().try_into().ok()?;
        self.0[Self::YEAR].copy_from_slice(&digits);
        Some(self)
    }

    /// Where in its year the date lies, in an order that is the order of time.
    fn within_year(&self) -> Option<(usize, &[u8], &[u8])> {
        let month = MONTHS.iter().position(|&m| m == &self.0[Self::MONTH])?;
        Some((month, &self.0[Self::DAY], &self.0[Self::TIME]))
    }

    /// Takes the year for its last two digits alone, and makes it the latest that is no more than
    /// 50 years ahead, counted to the second.
    fn in_the_right_century(self, now: SystemTime) -> Option<Self> {
        let since_epoch = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .min(LAST_SECOND);
        let now = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH.checked_add(since_epoch)?);
        let now = Self(now.into_bytes().try_into().ok()?);

        let latest = now.year()?.checked_add(YEARS_AHEAD)?;
        let back = (latest % 100 + 100 - self.year()? % 100) % 100;
        let too_far = back == 0 && self.within_year()? > now.within_year()?;
        let year = latest
            .checked_sub(back)?
            .checked_sub(if too_far { 100 } else { 0 })?;
        self.with_year(year)
    }

    fn into_time(mut self) -> Option<SystemTime> {
        // A leap second ends when the next minute begins; being early is worse than being late.
        let leap = self.0[Self::SECOND] == *b"60";
        if leap {
            self.0[Self::SECOND].copy_from_slice(b"59");
        }
        // A date before 1970 is long past, not malformed: some servers send the year 1.
        let year = self.year()?;
        let cycles = 1970_u16.saturating_sub(year).div_ceil(CYCLE_YEARS);
        let later = self.with_year(year.checked_add(cycles * CYCLE_YEARS)?)?;

        let time = httpdate::parse_http_date(str::from_utf8(&later.0).ok()?).ok()?;
        let time = time.checked_add(Duration::from_secs(u64::from(leap)))?;
        // Some systems have no such time. The epoch is as past as any.
        Some(
            time.checked_sub(CYCLE * u32::from(cycles))
                .unwrap_or(SystemTime::UNIX_EPOCH),
        )
    }
}
