//! What an error says about a request: might another attempt mend it, and may the server have
//! processed it?
//!
//! | error | reading |
//! |---|---|
//! | connection refused or never established, `REFUSED_STREAM`, a GOAWAY below the stream | transient, nothing processed |
//! | a time-out while connecting | time-out, nothing processed |
//! | any other time-out, tower's `Elapsed` | time-out, unknown |
//! | a connection that broke, an incomplete message, a reset | transient, unknown |
//! | TLS and certificates, a bad URI, a message that cannot be parsed, the caller's own body | permanent |
//! | tower's `Overloaded`, a closed `Buffer` | local overload |
//! | anything else | unknown |

use crate::reason::{Cause, Processed};
use std::{error::Error, io};

/// A source chain longer than this is not followed to its end.
const MAX_CHAIN: usize = 32;

/// What an error says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recognised {
    pub(crate) kind: Kind,
    /// A short name of what was recognised, for logs and the `503`.
    pub(crate) name: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Transient(Cause, Processed),
    Permanent,
    /// This process has too much to do, not the server.
    LocalOverload,
}

impl Recognised {
    fn without_proof(self) -> Self {
        let kind = match self.kind {
            Kind::Transient(Cause::Unprocessed, _) => {
                Kind::Transient(Cause::Transport, Processed::Unknown)
            }
            Kind::Transient(cause, _) => Kind::Transient(cause, Processed::Unknown),
            other => other,
        };
        Self { kind, ..self }
    }

    const fn transient(name: &'static str, cause: Cause, processed: Processed) -> Self {
        let kind = Kind::Transient(cause, processed);
        Self { kind, name }
    }

    const fn permanent(name: &'static str) -> Self {
        let kind = Kind::Permanent;
        Self { kind, name }
    }

    const fn local_overload(name: &'static str) -> Self {
        let kind = Kind::LocalOverload;
        Self { kind, name }
    }
}

/// Reads `error` and its source chain. `None` is an error that nobody here knows.
///
/// What of it is proof that nothing was processed is weighed by `trust`.
pub(crate) fn recognise(error: &(dyn Error + 'static), trust: Trust) -> Option<Recognised> {
    let mut scan = Scan {
        vouched: trust.outermost,
        ..Scan::default()
    };
    let mut next = Some(error);
    for _ in 0..MAX_CHAIN {
        let Some(error) = next else { break };
        if let Some(certain) = scan.look_at(error) {
            scan.found = Some(certain);
            break;
        }
        next = inner(error);
    }
    let found = scan.conclude(error)?;
    let trusted = trust.proof && (trust.reqwest || !is_reqwest(error));
    Some(if trusted {
        found
    } else {
        found.without_proof()
    })
}

/// Whether a client that may follow redirects had a part in it: what could not be reached may be the
/// second request of an attempt whose first was processed.
fn is_reqwest(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "reqwest")]
    return find::<::reqwest::Error>(error).is_some();
    #[cfg(not(feature = "reqwest"))]
    {
        let _ = error;
        false
    }
}

/// What an error is believed to prove.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trust {
    /// Anything at all.
    pub(crate) proof: bool,
    /// That reqwest could not connect: true if its client follows no redirects.
    pub(crate) reqwest: bool,
    /// That the outermost error speaks of this request, though its type is a stranger's.
    pub(crate) outermost: bool,
}

/// The first `T` in the error and its source chain.
pub(crate) fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    for _ in 0..MAX_CHAIN {
        let error = next?;
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = inner(error);
    }
    None
}

/// The next error of the chain. `io::Error::source` skips the error that it wraps.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|wrapped| wrapped as _),
        None => error.source(),
    }
}

/// What is known so far on the way down a source chain.
#[derive(Default)]
struct Scan {
    /// Below an error that says "while connecting": nothing was sent yet.
    connecting: bool,
    /// Below an error of an exchange under way, or of a stranger: an I/O error in it proves nothing.
    exchanging: bool,
    /// Whether the outermost error was vouched for.
    vouched: bool,
    found: Option<Recognised>,
}

impl Scan {
    /// Returns what is certain whatever lies further down.
    fn look_at(&mut self, error: &(dyn Error + 'static)) -> Option<Recognised> {
        if error.is::<tower::load_shed::error::Overloaded>() {
            return Some(Recognised::local_overload("overloaded"));
        }
        if error.is::<tower::buffer::error::Closed>()
            || error.is::<tower::buffer::error::ServiceError>()
        {
            return Some(Recognised::local_overload("buffer_closed"));
        }
        if error.is::<tower::timeout::error::Elapsed>() || error.is::<tokio::time::error::Elapsed>()
        {
            return Some(self.timeout("elapsed"));
        }
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            self.connecting |= error.is_connect();
            return None;
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return self.hyper(error);
        }
        #[cfg(feature = "http2")]
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return self.h2(error);
        }
        #[cfg(feature = "reqwest")]
        if let Some(error) = error.downcast_ref::<::reqwest::Error>() {
            return self.reqwest(error);
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return self.io(error);
        }
        // What a stranger's error was caused by need not have happened to this request, unless
        // somebody vouches for it.
        self.exchanging |= !std::mem::take(&mut self.vouched);
        None
    }

    /// What the whole chain says.
    fn conclude(self, error: &(dyn Error + 'static)) -> Option<Recognised> {
        if self.found.is_none() && self.connecting {
            return Some(if is_permanent_by_its_words(error) {
                Recognised::permanent("connect")
            } else {
                self.broken("connect")
            });
        }
        self.found
    }

    fn processed(&self) -> Processed {
        if self.connecting {
            Processed::No
        } else {
            Processed::Unknown
        }
    }

    fn timeout(&self, name: &'static str) -> Recognised {
        Recognised::transient(name, Cause::Timeout, self.processed())
    }

    /// A break: of the attempt to connect, or of an exchange under way.
    fn broken(&self, name: &'static str) -> Recognised {
        let cause = if self.connecting {
            Cause::Unprocessed
        } else {
            Cause::Transport
        };
        Recognised::transient(name, cause, self.processed())
    }

    fn hyper(&mut self, error: &hyper::Error) -> Option<Recognised> {
        // hyper counts a connection task that is gone as the caller's doing, and offers no other way to
        // tell it from a request that cannot be sent.
        if error.is_user() && error.to_string() != "dispatch task is gone" {
            return Some(Recognised::permanent("request"));
        }
        if error.is_parse() {
            return Some(Recognised::permanent("malformed_response"));
        }
        if error.is_timeout() {
            return Some(self.timeout("timeout"));
        }
        let name = if error.is_incomplete_message() {
            "incomplete_message"
        } else if error.is_canceled() {
            "canceled"
        } else {
            "connection"
        };
        self.exchanging = true;
        self.found = Some(self.broken(name));
        // What lies below may be an h2 error with proof.
        None
    }

    #[cfg(feature = "http2")]
    fn h2(&mut self, error: &h2::Error) -> Option<Recognised> {
        let reason = error.reason();
        if error.is_remote() && error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM) {
            let name = "refused_stream";
            return Some(Recognised::transient(
                name,
                Cause::Unprocessed,
                Processed::No,
            ));
        }
        if error.is_remote() && error.is_go_away() {
            let name = "goaway";
            return Some(Recognised::transient(
                name,
                Cause::Unprocessed,
                Processed::No,
            ));
        }
        if reason == Some(h2::Reason::HTTP_1_1_REQUIRED) {
            return Some(Recognised::permanent("http_1_1_required"));
        }
        if !error.is_reset() && !error.is_go_away() && !error.is_io() && reason.is_none() {
            return Some(Recognised::permanent("request"));
        }
        Some(self.broken(if error.is_io() { "connection" } else { "reset" }))
    }

    #[cfg(feature = "reqwest")]
    fn reqwest(&mut self, error: &::reqwest::Error) -> Option<Recognised> {
        let exchange = find::<hyper::Error>(error);
        // reqwest's own questions look down the whole chain, and so at what the caller's body failed
        // with, which may have come from another server.
        if exchange.is_some_and(hyper::Error::is_user) {
            return Some(Recognised::permanent("request"));
        }
        self.connecting |= error.is_connect();
        if error.is_timeout() {
            return Some(self.timeout("timeout"));
        }
        if error.is_builder() || error.is_redirect() || error.is_status() || error.is_upgrade() {
            return Some(Recognised::permanent("request"));
        }
        // A response body that somebody below reads: the connection may have broken under it.
        if (error.is_body() || error.is_decode()) && exchange.is_none() {
            return Some(Recognised::permanent("body"));
        }
        None
    }

    fn io(&mut self, error: &io::Error) -> Option<Recognised> {
        use io::ErrorKind as Kind;
        let name = io_name(error.kind());
        match error.kind() {
            Kind::TimedOut => return Some(self.timeout(name)),
            // A TLS stack reports a failed handshake, a bad certificate included, as bad data.
            Kind::InvalidData | Kind::InvalidInput | Kind::Unsupported | Kind::PermissionDenied => {
                return Some(Recognised::permanent(name));
            }
            _ if self.connecting => self.found = Some(self.broken(name)),
            _ if self.exchanging => return Some(self.broken(name)),
            Kind::ConnectionRefused => {
                return Some(Recognised::transient(
                    name,
                    Cause::Unprocessed,
                    Processed::No,
                ));
            }
            Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::BrokenPipe
            | Kind::UnexpectedEof
            | Kind::AddrNotAvailable
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::Interrupted
            | Kind::WouldBlock => return Some(self.broken(name)),
            // What it wraps may say more.
            _ => {}
        }
        None
    }
}

/// Whether an attempt to connect failed for good, of which the types say nothing: TLS stacks and
/// connectors have errors of their own.
fn is_permanent_by_its_words(error: &(dyn Error + 'static)) -> bool {
    const WORDS: [&str; 6] = [
        "certificate",
        "tls",
        "ssl",
        "handshake",
        "invalid url",
        "scheme",
    ];
    let chain = std::iter::successors(Some(error), |error| inner(*error));
    // An outer error may name the URL, and a URL may contain anything.
    let below = chain
        .take(MAX_CHAIN)
        .skip_while(|error| !is_connect(*error));
    below.skip(1).any(|error| {
        let words = error.to_string().to_ascii_lowercase();
        WORDS.iter().any(|word| words.contains(word))
    })
}

fn is_connect(error: &(dyn Error + 'static)) -> bool {
    error.is::<hyper_util::client::legacy::Error>()
}

fn io_name(kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind as Kind;
    match kind {
        Kind::ConnectionRefused => "connection_refused",
        Kind::ConnectionReset => "connection_reset",
        Kind::ConnectionAborted => "connection_aborted",
        Kind::BrokenPipe => "broken_pipe",
        Kind::UnexpectedEof => "unexpected_eof",
        Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => "unreachable",
        Kind::TimedOut => "timeout",
        Kind::InvalidData => "invalid_data",
        _ => "io",
    }
}

#[cfg(test)]
mod tests;
