//! Reads how long a server asks its caller to wait: `Retry-After`, and vendor fields on request.
//!
//! ```
//! use http::{HeaderMap, HeaderValue, header::RETRY_AFTER};
//! use std::time::{Duration, SystemTime};
//! use tower_retry_budget::policy::retry_after::{Hint, read};
//!
//! let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
//! let mut headers = HeaderMap::new();
//! assert_eq!(read(&headers, now), Hint::Absent);
//!
//! headers.insert(RETRY_AFTER, HeaderValue::from_static("2.5"));
//! assert_eq!(read(&headers, now), Hint::Wait(Duration::from_secs(3)));
//!
//! headers.insert(RETRY_AFTER, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
//! assert_eq!(read(&headers, now), Hint::Wait(Duration::from_secs(7)));
//!
//! headers.insert(RETRY_AFTER, HeaderValue::from_static("soon"));
//! assert_eq!(read(&headers, now), Hint::Malformed);
//! ```
//!
//! # What is read
//!
//! The field is read as [RFC 9110 section 10.2.3] has it, with one addition that real servers make
//! necessary, the decimal fraction. In doubt the wait is longer, never shorter than was asked:
//!
//! | value | wait |
//! |---|---|
//! | digits | that many seconds; more than fit into a `u64` are `u64::MAX` seconds, not garbage |
//! | digits `.` digits | rounded up to whole seconds |
//! | an HTTP-date, in any of its three forms | until then, always UTC; zero when it is past |
//! | anything else: signs, exponents, lists, blanks, other dates | malformed |
//!
//! - Blanks and tabs around the value are no part of it.
//! - A date is measured against the response's own `Date` when that is within 24 hours of `now`,
//!   so that a wrong clock on either side does not matter; else against `now`. Of several such
//!   `Date` lines the earliest counts.
//! - A two-digit year is the one that is at most 50 years ahead of `now`
//!   ([RFC 9110 section 5.6.7]).
//! - When the field is sent more than once, the longest wait counts, and lines that are malformed
//!   are passed over.
//!
//! [RFC 9110 section 10.2.3]: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
//! [RFC 9110 section 5.6.7]: https://www.rfc-editor.org/rfc/rfc9110#section-5.6.7

mod date;

use http::{
    HeaderMap, HeaderName,
    header::{DATE, RETRY_AFTER},
};
use std::time::{Duration, SystemTime};

/// What a number too large for a `u64` is read as, whatever its unit.
const VERY_LONG: Duration = Duration::from_secs(u64::MAX);

/// How far a `Date` may be from the local clock and still be what dates are measured against. A
/// clock that is off by a zone or a day was set by somebody; one further off was never set.
const TRUSTED_DATE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a response says about the wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// No field that is read was there.
    Absent,
    /// A field was there, and nothing in it could be read.
    Malformed,
    /// The server asks to be left alone for this long. Zero when it says `0`, or names a time that
    /// has passed.
    Wait(Duration),
}

/// What the number in a [`VendorField`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Milliseconds to wait.
    Milliseconds,
    /// Seconds to wait.
    Seconds,
    /// The time to wait for, in seconds since 1970-01-01 00:00:00 UTC; measured as a date is.
    UnixSeconds,
}

/// A response field, not covered by a standard, that says how long to wait.
///
/// It is read only when a policy lists it. Its value is a number, with or without a decimal
/// fraction, which is rounded up to a whole one of its [`Unit`].
///
/// A readable field in milliseconds wins over every coarser one, the standard `Retry-After`
/// included; among fields as fine as each other the longest wait counts. A value that cannot be
/// read is as if it were not there.
///
/// Listing `retry-after` itself says that the server's numbers are not seconds. They are then read
/// in the unit given and no other; a date stays a date.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VendorField {
    name: HeaderName,
    unit: Unit,
}

impl VendorField {
    /// Returns a field that is read in `unit`.
    pub const fn new(name: HeaderName, unit: Unit) -> Self {
        Self { name, unit }
    }
}

/// Reads the `Retry-After` of a response that arrived at `now`.
///
/// The clock is not read, and vendor fields are not looked at. The [module](self) says what is
/// understood.
pub fn read(headers: &HeaderMap, now: SystemTime) -> Hint {
    read_with(headers, &[], now)
}

/// Like [`read`], and reads `vendor_fields` as well, by the rules of [`VendorField`].
pub(crate) fn read_with(
    headers: &HeaderMap,
    vendor_fields: &[VendorField],
    now: SystemTime,
) -> Hint {
    let mut present = false;
    let mut fine = None;
    let mut coarse = None;
    let mut take = |name: &HeaderName, unit: Unit| {
        for value in headers.get_all(name) {
            present = true;
            let wait = read_line(value.as_bytes(), name, unit, headers, now);
            let longest = match unit {
                Unit::Milliseconds => &mut fine,
                Unit::Seconds | Unit::UnixSeconds => &mut coarse,
            };
            // `None` is less than any wait, so that a malformed line never counts.
            *longest = wait.max(*longest);
        }
    };

    for field in vendor_fields {
        take(&field.name, field.unit);
    }
    if !vendor_fields.iter().any(|field| field.name == RETRY_AFTER) {
        take(&RETRY_AFTER, Unit::Seconds);
    }

    match fine.or(coarse) {
        Some(wait) => Hint::Wait(wait),
        None if present => Hint::Malformed,
        None => Hint::Absent,
    }
}

/// Reads one line of the field `name`.
fn read_line(
    value: &[u8],
    name: &HeaderName,
    unit: Unit,
    headers: &HeaderMap,
    now: SystemTime,
) -> Option<Duration> {
    let value = trim(value);
    let until = |then: SystemTime| {
        then.duration_since(reference(headers, now))
            .unwrap_or_default()
    };
    if let Some(number) = number_rounded_up(value) {
        return Some(match unit {
            _ if number == u64::MAX => VERY_LONG,
            Unit::Milliseconds => Duration::from_millis(number),
            Unit::Seconds => Duration::from_secs(number),
            Unit::UnixSeconds => SystemTime::UNIX_EPOCH
                .checked_add(Duration::from_secs(number))
                .map_or(VERY_LONG, until),
        });
    }
    if name == RETRY_AFTER {
        return date::parse(value, now).map(until);
    }
    None
}

/// The time that dates are measured against. The earliest `Date` makes the longest wait.
fn reference(headers: &HeaderMap, now: SystemTime) -> SystemTime {
    let distance = |date: SystemTime| match date.duration_since(now) {
        Ok(ahead) => ahead,
        Err(behind) => behind.duration(),
    };
    headers
        .get_all(DATE)
        .iter()
        .filter_map(|value| date::parse(trim(value.as_bytes()), now))
        .filter(|date| distance(*date) <= TRUSTED_DATE)
        .min()
        .unwrap_or(now)
}

/// Reads `digits` or `digits.digits`, rounded up; `u64::MAX` stands for all that is larger.
///
/// No float is involved: it would lose the last digits of a long number, and with them round down.
fn number_rounded_up(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    let is_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let started = fraction.iter().any(|&digit| digit != b'0');
    let number = whole.iter().fold(0_u64, |number, &digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    Some(number.saturating_add(u64::from(started)))
}

/// Strips the optional whitespace of RFC 9110 section 5.6.3, and no other.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests;
