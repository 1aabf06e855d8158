//! Durations as people write them: `250ms`, `15m`, `1h30m`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, time::Duration};

/// The units, the largest first, in nanoseconds.
const UNITS: &[(&str, u128)] = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const EXPECTED: &str = "a duration such as \"250ms\", \"15m\" or \"1h30m\"";

/// A duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    /// Whole numbers, each with its unit. Blanks between them do not matter.
    fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        let mut nanos: u128 = 0;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let unit = rest.find(|c: char| !c.is_ascii_digit())?;
            let (number, after) = rest.split_at(unit);
            let after = after.trim_start();
            let end = after.find(|c: char| !c.is_ascii_alphabetic());
            let (name, after) = after.split_at(end.unwrap_or(after.len()));
            let (_, factor) = UNITS.iter().find(|unit| unit.0 == name)?;
            let number: u64 = number.parse().ok()?;
            nanos = nanos.checked_add(u128::from(number).checked_mul(*factor)?)?;
            rest = after.trim_start();
        }
        let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
        let below = u32::try_from(nanos % 1_000_000_000).ok()?;
        Some(Self(Duration::new(seconds, below)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        for (name, factor) in UNITS {
            if nanos >= *factor {
                write!(f, "{}{name}", nanos / factor)?;
                nanos %= factor;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                Span::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

/// A duration, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(limit) => Span(limit).serialize(serializer),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{EXPECTED}, or \"none\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
                if text == "none" {
                    return Ok(Limit(None));
                }
                let span = Span::parse(text);
                let span = span.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self));
                Ok(Limit(Some(span?.0)))
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        let ms = |text| Span::parse(text).map(|span| span.0.as_millis());
        assert_eq!(ms("250ms"), Some(250));
        assert_eq!(ms("15m"), Some(900_000));
        assert_eq!(ms(" 1h 30m "), Some(5_400_000));
        assert_eq!(ms("1d2s"), Some(86_402_000));
        assert_eq!(ms("0s"), Some(0));
        assert_eq!(
            Span::parse("1500us").map(|span| span.0.as_micros()),
            Some(1500)
        );
    }

    #[test]
    fn refuses_what_leaves_a_doubt() {
        for text in [
            "",
            " ",
            "5",
            "ms",
            "-1s",
            "1.5s",
            "1 5s",
            "5S",
            "5min",
            "s5",
            "5s5",
            "5s,",
            "∞",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert_eq!(Span::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(seconds in any::<u64>(), nanos in 0..1_000_000_000_u32) {
            let span = Span(Duration::new(seconds, nanos));
            prop_assert_eq!(Span::parse(&span.to_string()), Some(span));
        }

        #[test]
        fn never_panics(text in ".*") {
            _ = Span::parse(&text);
        }
    }
}
