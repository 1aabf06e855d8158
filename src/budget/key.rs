use super::hash::last_word;
use http::{
    Uri,
    uri::{Authority, Scheme},
};
use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

/// The longest host that is kept inline. Chosen so that a key is one cache line of 64 bytes; longer
/// host names are legal (up to 253 bytes) and rare.
const INLINE: usize = 56;

/// What a budget belongs to: the dependency that can be overloaded.
///
/// By default that is the scheme, host and port of a request ([`from_uri`](Key::from_uri)). A name
/// of one's own ([`new`](Key::new), [`from_static`](Key::from_static)) puts several hosts on one
/// account, or one host on several.
///
/// A key is compared by content, costs 64 bytes at most, and is built and cloned without allocation
/// for `http` and `https` hosts of up to 56 bytes; longer ones are held in an [`Arc`].
///
/// Named keys and keys of an authority are two separate kinds: they are never equal, even where they
/// print the same. A name that is chosen freely can thus not collide with a host by accident.
///
/// ```
/// use tower_retry_budget::budget::Key;
///
/// let uri = http::Uri::from_static("http://user@Search:80/find?q=1");
/// assert_eq!(Key::from_uri(&uri), Key::from_uri(&http::Uri::from_static("http://search")));
/// assert_eq!(Key::from_uri(&uri).to_string(), "http://search");
/// assert_eq!(Key::new(String::from("reports")), Key::from_static("reports"));
/// ```
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Authority(Inline),
    /// An authority that does not fit inline, as it prints. Never one that would fit, so that equal
    /// authorities have equal representations.
    Shared(Arc<str>),
    Name(Arc<str>),
    Static(&'static str),
    NoAuthority,
    Overflow,
}

/// An authority in place. `host` is zero beyond `len`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Inline {
    scheme: SchemeCode,
    len: u8,
    port: Option<u16>,
    host: [u8; INLINE],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemeCode {
    /// An authority without a scheme, as in a `CONNECT` request.
    None,
    Http,
    Https,
}

impl SchemeCode {
    /// Returns `None` for a scheme that is not kept inline.
    fn of(scheme: Option<&Scheme>) -> Option<Self> {
        match scheme.map(Scheme::as_str) {
            None => Some(Self::None),
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => Some(Self::Http),
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => Some(Self::Https),
            Some(_) => None,
        }
    }

    const fn default_port(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::Http => Some(80),
            Self::Https => Some(443),
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Http => "http://",
            Self::Https => "https://",
        }
    }
}

impl Key {
    /// The account that keys share for which there is no room. Not to be had from outside.
    pub(super) const OVERFLOW: Self = Self(Repr::Overflow);

    /// Returns the key of the scheme, host and port that a request is sent to.
    ///
    /// Scheme and host are compared without regard to ASCII case. The default port of `http` and
    /// `https` is filled in, and user information is left out. An authority without a scheme is a
    /// key of its own, and so is a host with a trailing dot. A URI without an authority, such as
    /// the `/path` of a request that a server received, has the one constant key
    /// [`no_authority`](Key::no_authority): the `Host` header is never read, since the peer can
    /// write into it what it likes.
    pub fn from_uri(uri: &Uri) -> Self {
        match uri.authority() {
            Some(authority) => Self::from_authority(uri.scheme(), authority),
            None => Self::no_authority(),
        }
    }

    fn from_authority(scheme: Option<&Scheme>, authority: &Authority) -> Self {
        let (host, port) = split(authority.as_str());
        let code = SchemeCode::of(scheme);
        if let (Some(code), Ok(len)) = (code, u8::try_from(host.len())) {
            let mut inline = Inline {
                scheme: code,
                len,
                port: port.or(code.default_port()),
                host: [0; INLINE],
            };
            if let Some(place) = inline.host.get_mut(..host.len()) {
                for (to, from) in place.iter_mut().zip(host.as_bytes()) {
                    *to = from.to_ascii_lowercase();
                }
                return Self(Repr::Authority(inline));
            }
        }
        let mut text = match (code, scheme) {
            (Some(code), _) => code.prefix().to_owned(),
            (None, Some(scheme)) => format!("{scheme}://"),
            (None, None) => String::new(),
        };
        text.push_str(host);
        if let Some(port) = port.filter(|_| port != code.and_then(SchemeCode::default_port)) {
            text.push_str(&format!(":{port}"));
        }
        text.make_ascii_lowercase();
        Self(Repr::Shared(text.into()))
    }

    /// Returns the constant key of requests without an authority. Prints as `no-authority`.
    pub const fn no_authority() -> Self {
        Self(Repr::NoAuthority)
    }

    /// Creates a named key.
    ///
    /// It never equals the key of an authority. Keep the number of names small: a budget has room
    /// for a limited number of keys.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(Repr::Name(name.into()))
    }

    /// Creates a named key without allocating. Equal to [`Key::new`] with the same name.
    pub const fn from_static(name: &'static str) -> Self {
        Self(Repr::Static(name))
    }

    pub(super) fn is_overflow(&self) -> bool {
        matches!(self.0, Repr::Overflow)
    }

    pub(super) fn is_no_authority(&self) -> bool {
        matches!(self.0, Repr::NoAuthority)
    }

    /// A cheap, unkeyed hash that spreads keys over shards. Equal for equal keys; who provokes
    /// collisions gains no more than a busier shard.
    pub(super) fn spread(&self) -> u64 {
        /// 2^64 divided by the golden ratio: an odd number that mixes well into the high bits.
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

        let (seed, text) = match &self.0 {
            Repr::Authority(inline) => (inline.port_code(), inline.host()),
            Repr::Shared(text) => (1, text.as_bytes()),
            Repr::Name(name) => (2, name.as_bytes()),
            Repr::Static(name) => (2, name.as_bytes()),
            Repr::NoAuthority | Repr::Overflow => (3, &[][..]),
        };
        let words = text.chunks_exact(8);
        let last = last_word(words.remainder());
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(MIX);
        let hash = words
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .fold(seed.wrapping_mul(MIX), mix);
        mix(hash, last)
    }
}

impl Inline {
    fn host(&self) -> &[u8] {
        self.host.get(..usize::from(self.len)).unwrap_or(&self.host)
    }

    /// The port as a number that tells "none" from every port.
    fn port_code(&self) -> u64 {
        self.port.map_or(u64::MAX, u64::from)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Repr::Authority(a), Repr::Authority(b)) => a == b,
            (Repr::Shared(a), Repr::Shared(b)) => a == b,
            (Repr::NoAuthority, Repr::NoAuthority) | (Repr::Overflow, Repr::Overflow) => true,
            _ => match (self.name(), other.name()) {
                (Some(a), Some(b)) => a == b,
                _ => false,
            },
        }
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Repr::Authority(inline) => {
                // One word and one slice: the hash is most of what a look-up costs.
                let head = inline.port_code() << 16
                    | u64::from(inline.len) << 8
                    | u64::from(inline.scheme as u8);
                state.write_u64(head);
                state.write(inline.host());
            }
            Repr::Shared(text) => text.hash(state),
            Repr::Name(name) => name.hash(state),
            Repr::Static(name) => name.hash(state),
            Repr::NoAuthority => state.write_u8(0),
            Repr::Overflow => state.write_u8(1),
        }
    }
}

impl Key {
    fn name(&self) -> Option<&str> {
        match &self.0 {
            Repr::Name(name) => Some(name),
            Repr::Static(name) => Some(name),
            _ => None,
        }
    }
}

/// Splits a valid authority into host and port, without user information, in one pass.
///
/// The same as http's own `host` and `port_u16`, which search for each part anew: the key of a
/// request is made on every call.
fn split(authority: &str) -> (&str, Option<u16>) {
    let (mut start, mut colon) = (0, None);
    for (at, byte) in authority.bytes().enumerate() {
        match byte {
            b'@' => (start, colon) = (at + 1, None),
            // Colons inside the brackets belong to an IPv6 address.
            b']' => colon = None,
            b':' => colon = Some(at),
            _ => {}
        }
    }
    let host = authority.get(start..colon.unwrap_or(authority.len()));
    let port = colon.and_then(|colon| authority.get(colon + 1..)?.parse().ok());
    (host.unwrap_or_default(), port)
}

/// Prints `http://search:8080`, the default port omitted; a named key prints its name.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Authority(inline) => {
                f.write_str(inline.scheme.prefix())?;
                f.write_str(&String::from_utf8_lossy(inline.host()))?;
                match inline.port {
                    Some(port) if inline.port != inline.scheme.default_port() => {
                        write!(f, ":{port}")
                    }
                    _ => Ok(()),
                }
            }
            Repr::Shared(text) => f.write_str(text),
            Repr::Name(name) => f.write_str(name),
            Repr::Static(name) => f.write_str(name),
            Repr::NoAuthority => f.write_str("no-authority"),
            Repr::Overflow => f.write_str("overflow"),
        }
    }
}

/// Quotes the name of a named key, so that it is told from an authority.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.debug_tuple("Key").field(&name).finish(),
            None => write!(f, "Key({self})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_a_cache_line() {
        assert!(size_of::<Key>() <= 64, "{} bytes", size_of::<Key>());
    }

    #[test]
    fn splits_as_http_does() {
        for user in ["", "u@", "u:1@", "u:p:q@", ":@"] {
            for host in ["a", "a.b-c.d", "127.0.0.1", "[::1]", "[2001:db8::80]", "80"] {
                for port in ["", ":", ":0", ":80", ":65535", ":65536"] {
                    let text = format!("{user}{host}{port}");
                    let Ok(authority) = text.parse::<Authority>() else {
                        continue;
                    };
                    let expected = (authority.host(), authority.port_u16());
                    assert_eq!(split(&text), expected, "{text}");
                    assert_eq!(expected.0, host);
                }
            }
        }
    }

    #[test]
    fn spreads_equal_keys_alike_and_hosts_widely() {
        assert_eq!(
            Key::new("a name").spread(),
            Key::from_static("a name").spread()
        );
        let mut shards = [0_u32; 16];
        for n in 0..16_000 {
            let uri: Uri = format!("http://h{n}.example.com").parse().unwrap();
            let shard = Key::from_uri(&uri).spread() >> 60;
            shards[usize::try_from(shard).unwrap()] += 1;
        }
        assert!(shards.iter().all(|n| (500..2000).contains(n)), "{shards:?}");
    }
}
