//! Header fields in one piece of memory.
//!
//! Most requests are sent once. A copy of their fields as a map would cost an allocation for each value
//! that owns its memory; this one costs a single one, and is made a map again only for a retry, or for
//! a classifier that looks at it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::OnceLock;

/// A copy of a [`HeaderMap`]: names, values, their order, and which of them are secret.
pub(super) struct Packed {
    /// For each field the [lengths](Lengths) of its name and its value, then both.
    fields: Vec<u8>,
    /// How many there are.
    len: usize,
    /// As a map, once somebody looked. From then on this is what counts.
    map: OnceLock<Box<HeaderMap>>,
}

/// The lengths of a name and of a value, one in each half of a word, and the highest bit of all for a
/// value that is secret.
const LENGTHS: usize = size_of::<u64>();
const SENSITIVE: u64 = 1 << 63;

/// More than any head has, and less than half a word holds.
const MOST: usize = (1 << 31) - 1;

impl Packed {
    pub(super) fn new(headers: &HeaderMap) -> Self {
        let size = |(name, value): (&HeaderName, &HeaderValue)| {
            LENGTHS + name.as_str().len() + value.len()
        };
        let size = headers.iter().map(size).sum();
        if size > MOST {
            return Self::kept(headers.clone());
        }
        let mut fields = Vec::with_capacity(size);
        for (name, value) in headers {
            let (name, bytes) = (name.as_str().as_bytes(), value.as_bytes());
            let secret = if value.is_sensitive() { SENSITIVE } else { 0 };
            let lengths = (name.len() as u64) << 32 | bytes.len() as u64 | secret;
            fields.extend_from_slice(&lengths.to_le_bytes());
            fields.extend_from_slice(name);
            fields.extend_from_slice(bytes);
        }
        Self {
            fields,
            len: headers.len(),
            map: OnceLock::new(),
        }
    }

    fn kept(headers: HeaderMap) -> Self {
        Self {
            fields: Vec::new(),
            len: headers.len(),
            map: Box::new(headers).into(),
        }
    }

    /// The fields, to look at.
    pub(super) fn get(&self) -> &HeaderMap {
        self.map.get_or_init(|| Box::new(self.unpack()))
    }

    /// The fields, to change.
    pub(super) fn get_mut(&mut self) -> &mut HeaderMap {
        let map = match self.map.take() {
            Some(map) => map,
            None => Box::new(self.unpack()),
        };
        self.map = map.into();
        self.map.get_mut().expect("set just now")
    }

    /// A copy of the fields, to send.
    pub(super) fn to_map(&self) -> HeaderMap {
        match self.map.get() {
            Some(map) => HeaderMap::clone(map),
            None => self.unpack(),
        }
    }

    fn unpack(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.len);
        // The values share one piece of memory again.
        let shared = Bytes::copy_from_slice(&self.fields);
        let mut rest = &self.fields[..];
        while let Some((lengths, after)) = rest.split_first_chunk::<LENGTHS>() {
            let lengths = u64::from_le_bytes(*lengths);
            let (name, after) = after.split_at(half(lengths >> 32));
            let begin = self.fields.len() - after.len();
            let end = begin + half(lengths);
            let name = HeaderName::from_bytes(name).expect("it was a name before");
            let value = HeaderValue::from_maybe_shared(shared.slice(begin..end));
            let mut value = value.expect("it was a value before");
            value.set_sensitive(lengths & SENSITIVE != 0);
            headers.append(name, value);
            rest = &self.fields[end..];
        }
        headers
    }
}

/// The length in the lower half of a word.
fn half(word: u64) -> usize {
    usize::try_from(word & MOST as u64).unwrap_or(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(headers: &HeaderMap) -> Vec<(String, Vec<u8>, bool)> {
        let fields = headers.iter();
        fields
            .map(|(name, value)| {
                let name = name.as_str().to_owned();
                (name, value.as_bytes().to_owned(), value.is_sensitive())
            })
            .collect()
    }

    #[test]
    fn copies_nothing_where_there_is_nothing() {
        let packed = Packed::new(&HeaderMap::new());
        assert_eq!(packed.fields.capacity(), 0);
        assert!(packed.get().is_empty());
        assert!(packed.to_map().is_empty());
    }

    #[test]
    fn sends_what_was_changed_and_not_what_was_there_before() {
        let mut headers = HeaderMap::new();
        headers.insert("expect", HeaderValue::from_static("100-continue"));
        headers.insert("x-a", HeaderValue::from_static("1"));
        let mut packed = Packed::new(&headers);
        assert_eq!(packed.get(), &headers);
        packed.get_mut().remove("expect");
        packed
            .get_mut()
            .insert("x-b", HeaderValue::from_static("2"));
        let sent = packed.to_map();
        assert_eq!(sent.get("expect"), None);
        assert_eq!(
            (sent.len(), &sent["x-a"], &sent["x-b"]),
            (2, &headers["x-a"], &sent["x-b"])
        );
        assert_eq!(packed.get(), &sent);
    }

    proptest! {
        #[test]
        fn copies_names_values_order_repetitions_and_secrets(
            wanted in proptest::collection::vec(
                ("[a-z]{1,3}|accept|[a-z-]{70,90}", "[ -~\u{80}-\u{ff}]{0,40}", any::<bool>()),
                0..20,
            ),
        ) {
            let mut headers = HeaderMap::new();
            for (name, value, secret) in wanted {
                let name = HeaderName::try_from(name).expect("a valid name");
                let mut value = HeaderValue::try_from(value).expect("a valid value");
                value.set_sensitive(secret);
                headers.append(name, value);
            }
            let packed = Packed::new(&headers);
            prop_assert_eq!(fields(&packed.to_map()), fields(&headers));
            prop_assert_eq!(fields(packed.get()), fields(&headers));
            prop_assert_eq!(fields(&packed.to_map()), fields(&headers));
        }
    }
}
