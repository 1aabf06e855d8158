//! Values that are one thing or another.

use crate::policy::{Jitter, StatusTable};
use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A number, or `none`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OrNone(pub(crate) Option<f64>);

impl Serialize for OrNone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(number) => serializer.serialize_f64(number),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for OrNone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Words {
            expected: "a number, or \"none\"",
            word: |word| (word == "none").then_some(Self(None)),
            number: |number| Self(Some(number)),
        };
        deserializer.deserialize_any(words)
    }
}

/// A jitter that can be written down: its name, or a share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum JitterData {
    None,
    Full,
    Equal,
    Decorrelated,
    Share(f64),
}

impl JitterData {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("full", Self::Full),
        ("equal", Self::Equal),
        ("decorrelated", Self::Decorrelated),
    ];

    /// `None` for one that is code.
    pub(crate) fn of(jitter: &Jitter) -> Option<Self> {
        match jitter {
            Jitter::None => Some(Self::None),
            Jitter::Full => Some(Self::Full),
            Jitter::Equal => Some(Self::Equal),
            Jitter::Decorrelated => Some(Self::Decorrelated),
            Jitter::Share(share) => Some(Self::Share(*share)),
            Jitter::Injected(_) => None,
        }
    }
}

impl From<JitterData> for Jitter {
    fn from(jitter: JitterData) -> Self {
        match jitter {
            JitterData::None => Self::None,
            JitterData::Full => Self::Full,
            JitterData::Equal => Self::Equal,
            JitterData::Decorrelated => Self::Decorrelated,
            JitterData::Share(share) => Self::Share(share),
        }
    }
}

impl Serialize for JitterData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Share(share) = self {
            return serializer.serialize_f64(*share);
        }
        let name = Self::NAMES.iter().find(|(_, jitter)| jitter == self);
        serializer.serialize_str(name.map_or("none", |(name, _)| name))
    }
}

impl<'de> Deserialize<'de> for JitterData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Words {
            expected: "\"none\", \"full\", \"equal\", \"decorrelated\", or a share within 0 to 1",
            word: |word| {
                let name = Self::NAMES.iter().find(|(name, _)| *name == word);
                name.map(|(_, jitter)| *jitter)
            },
            number: Self::Share,
        };
        deserializer.deserialize_any(words)
    }
}

/// A word or a number.
struct Words<T> {
    expected: &'static str,
    word: fn(&str) -> Option<T>,
    number: fn(f64) -> T,
}

impl<T> de::Visitor<'_> for Words<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
        let refused = E::invalid_value(de::Unexpected::Str(word), &self.expected);
        (self.word)(word).ok_or(refused)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        Ok((self.number)(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        #[allow(
            clippy::cast_precision_loss,
            reason = "settings of this kind are small"
        )]
        self.visit_f64(number as f64)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        #[allow(
            clippy::cast_precision_loss,
            reason = "settings of this kind are small"
        )]
        self.visit_f64(number as f64)
    }
}

/// A status table: the name of one, or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(pub(crate) StatusTable);

/// The tables that have a name.
fn named() -> [(&'static str, StatusTable); 5] {
    [
        ("default", StatusTable::default()),
        ("apis", StatusTable::apis()),
        ("webhooks", StatusTable::webhooks()),
        ("handlers", StatusTable::handlers()),
        (
            "connection_errors_only",
            StatusTable::connection_errors_only(),
        ),
    ]
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some((name, _)) = named().iter().find(|(_, table)| *table == self.0) {
            return serializer.serialize_str(name);
        }
        let codes = (100..1000).filter_map(|code| StatusCode::from_u16(code).ok());
        let listed = codes.filter(|status| self.0.contains(*status));
        serializer.collect_seq(listed.map(|status| status.as_u16()))
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Statuses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let names = named().map(|(name, _)| format!("\"{name}\"")).join(", ");
                write!(f, "{names}, or a list of statuses from 100 to 999")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Statuses, E> {
                let table = named().into_iter().find(|(name, _)| *name == word);
                let table = table.map(|(_, table)| Statuses(table));
                table.ok_or_else(|| E::invalid_value(de::Unexpected::Str(word), &self))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Statuses, A::Error> {
                let mut statuses = Vec::new();
                while let Some(code) = list.next_element::<u16>()? {
                    let unexpected = de::Unexpected::Unsigned(code.into());
                    let status = StatusCode::from_u16(code);
                    let refused = |_| de::Error::invalid_value(unexpected, &"a status");
                    statuses.push(status.map_err(refused)?);
                }
                Ok(Statuses(StatusTable::new(statuses)))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
