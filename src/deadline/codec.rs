use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// A header that carries the time left, and how it is written.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use std::time::Duration;
/// use tower_retry_budget::deadline::DeadlineHeader;
///
/// let left = Duration::from_micros(2_345_678);
/// let ours = DeadlineHeader::default();
/// assert_eq!(ours.name(), "x-deadline-remaining-ms");
/// assert_eq!(ours.write(left).unwrap(), "2345");
///
/// let grpc = DeadlineHeader::grpc_timeout();
/// assert_eq!(grpc.write(left).unwrap(), "2345678u");
/// assert_eq!(grpc.parse(&HeaderValue::from_static("3S")), Some(Duration::from_secs(3)));
/// assert_eq!(grpc.parse(&HeaderValue::from_static("-3S")), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineHeader {
    name: HeaderName,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Millis,
    Grpc,
}

/// The request header that says how many whole milliseconds are left for this attempt.
pub const DEADLINE_REMAINING_MS: HeaderName = HeaderName::from_static("x-deadline-remaining-ms");

impl DeadlineHeader {
    /// Whole milliseconds in a header of this name.
    pub const fn millis(name: HeaderName) -> Self {
        let format = Format::Millis;
        Self { name, format }
    }

    /// `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Timeout").
    pub const fn grpc_timeout() -> Self {
        Self {
            name: HeaderName::from_static("grpc-timeout"),
            format: Format::Grpc,
        }
    }

    /// `x-envoy-expected-rq-timeout-ms`: what Envoy tells an upstream of the time that it will wait.
    pub const fn envoy() -> Self {
        Self::millis(HeaderName::from_static("x-envoy-expected-rq-timeout-ms"))
    }

    /// The name of the header.
    pub fn name(&self) -> &HeaderName {
        &self.name
    }

    /// Writes the time left, never more than it is. `None` when that would be zero, which some
    /// readers take for no limit: a request with so little left is not sent.
    pub fn write(&self, left: Duration) -> Option<HeaderValue> {
        match self.format {
            Format::Millis => {
                let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                (millis > 0).then(|| millis.into())
            }
            Format::Grpc => write_grpc(left),
        }
    }

    /// Reads the time left. Zero means that it is over; `None` that the value is malformed.
    ///
    /// Digits only: no sign, no fraction, no exponent, no blanks but around it. A number too large
    /// to be a duration is the longest one.
    pub fn parse(&self, value: &HeaderValue) -> Option<Duration> {
        let value = value.as_bytes().trim_ascii();
        match self.format {
            Format::Millis => digits(value).map(Duration::from_millis),
            Format::Grpc => parse_grpc(value),
        }
    }
}

impl Default for DeadlineHeader {
    fn default() -> Self {
        Self::millis(DEADLINE_REMAINING_MS)
    }
}

/// What the deadline headers of a request say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remaining {
    Absent,
    /// There is one, but none can be read.
    Malformed,
    Left(Duration),
}

/// Reads the headers of a request: of several valid ones the shortest counts.
pub(super) fn read(headers: &HeaderMap, known: &[DeadlineHeader]) -> Remaining {
    let mut found = Remaining::Absent;
    for known in known {
        for value in headers.get_all(known.name()) {
            found = match (found, known.parse(value)) {
                (Remaining::Left(shortest), Some(left)) => Remaining::Left(left.min(shortest)),
                (_, Some(left)) => Remaining::Left(left),
                (Remaining::Left(shortest), None) => Remaining::Left(shortest),
                (_, None) => Remaining::Malformed,
            };
        }
    }
    found
}

/// The value of a string of digits; more than fit into a `u64` are `u64::MAX`.
fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = value.iter().fold(0_u64, |number, digit| {
        let digit = u64::from(digit - b'0');
        number.saturating_mul(10).saturating_add(digit)
    });
    Some(number)
}

const MICROSECOND: u128 = 1_000;
const MILLISECOND: u128 = 1_000 * MICROSECOND;
const SECOND: u128 = 1_000 * MILLISECOND;

/// The units of gRPC, the finest first, in nanoseconds.
const GRPC_UNITS: [(u8, u128); 6] = [
    (b'n', 1),
    (b'u', MICROSECOND),
    (b'm', MILLISECOND),
    (b'S', SECOND),
    (b'M', 60 * SECOND),
    (b'H', 3600 * SECOND),
];

/// The largest number that the format has room for: eight digits.
const GRPC_MOST: u128 = 99_999_999;

/// The finest unit that has room for the number; rounded down, so that the time never grows.
fn write_grpc(left: Duration) -> Option<HeaderValue> {
    let nanos = left.as_nanos();
    let written = GRPC_UNITS
        .iter()
        .map(|(unit, size)| (nanos / size, *unit))
        .find(|(number, _)| *number <= GRPC_MOST);
    let (number, unit) = written.unwrap_or((GRPC_MOST, b'H'));
    if number == 0 {
        return None;
    }
    HeaderValue::try_from(format!("{number}{}", char::from(unit))).ok()
}

fn parse_grpc(value: &[u8]) -> Option<Duration> {
    let (unit, number) = value.split_last()?;
    let (_, size) = GRPC_UNITS.iter().find(|(known, _)| known == unit)?;
    if number.len() > 8 {
        return None;
    }
    // At most 99,999,999 hours, which fits.
    let nanos = u128::from(digits(number)?) * size;
    let seconds = u64::try_from(nanos / SECOND).ok()?;
    let nanos = u32::try_from(nanos % SECOND).ok()?;
    Some(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::try_from(text).expect("a valid value")
    }

    #[test]
    fn reads_digits_and_nothing_else() {
        let header = DeadlineHeader::default();
        assert_eq!(header.parse(&value("0")), Some(Duration::ZERO));
        assert_eq!(
            header.parse(&value(" 007 ")),
            Some(Duration::from_millis(7))
        );
        let endless = value(&"9".repeat(10_000));
        let longest = Some(Duration::from_millis(u64::MAX));
        assert_eq!(header.parse(&endless), longest);
        for malformed in [
            "", " ", "-1", "+1", "1e3", "1.5", "12abc", "1 2", "0x1", "1,2",
        ] {
            assert_eq!(header.parse(&value(malformed)), None, "{malformed:?}");
        }
        let bytes = HeaderValue::from_bytes(b"1\xE4").expect("a valid value");
        assert_eq!(header.parse(&bytes), None);
    }

    #[test]
    fn writes_grpc_with_eight_digits_at_most() {
        let header = DeadlineHeader::grpc_timeout();
        let written = |left| header.write(left);
        assert_eq!(written(Duration::from_secs(30)), Some(value("30000000u")));
        assert_eq!(written(Duration::from_nanos(5)), Some(value("5n")));
        assert_eq!(written(Duration::from_secs(100)), Some(value("100000m")));
        assert_eq!(written(Duration::ZERO), None);
        assert_eq!(written(Duration::MAX), Some(value("99999999H")));
        for malformed in ["1", "m", "123456789m", "1s", "1.5S", "-1S", "1 S", ""] {
            assert_eq!(header.parse(&value(malformed)), None, "{malformed:?}");
        }
        let longest = header.parse(&value("99999999H"));
        assert_eq!(longest, Some(Duration::from_secs(99_999_999 * 3600)));
    }

    #[test]
    fn takes_the_shortest_of_all_that_can_be_read() {
        let known = [DeadlineHeader::default(), DeadlineHeader::grpc_timeout()];
        let mut headers = HeaderMap::new();
        assert_eq!(read(&headers, &known), Remaining::Absent);
        headers.append(DEADLINE_REMAINING_MS, value("soon"));
        assert_eq!(read(&headers, &known), Remaining::Malformed);
        headers.append(DEADLINE_REMAINING_MS, value("300"));
        headers.append(DEADLINE_REMAINING_MS, value("-1"));
        assert_eq!(
            read(&headers, &known),
            Remaining::Left(Duration::from_millis(300))
        );
        headers.append("grpc-timeout", value("20m"));
        assert_eq!(
            read(&headers, &known),
            Remaining::Left(Duration::from_millis(20))
        );
    }

    proptest! {
        #[test]
        fn never_reads_more_than_was_written(seconds in 0_u64.., nanos in 0_u32..1_000_000_000) {
            for left in [Duration::new(seconds, nanos), Duration::from_nanos(seconds)] {
                for header in [DeadlineHeader::default(), DeadlineHeader::grpc_timeout()] {
                    match header.write(left) {
                        Some(written) => {
                            let read = header.parse(&written).expect("what was written");
                            prop_assert!(read <= left);
                            prop_assert!(!read.is_zero());
                        }
                        None => prop_assert!(left < Duration::from_millis(1)),
                    }
                }
            }
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                for header in [DeadlineHeader::default(), DeadlineHeader::grpc_timeout()] {
                    let _ = header.parse(&value);
                }
            }
        }
    }
}
