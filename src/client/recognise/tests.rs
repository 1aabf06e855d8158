use super::*;
use crate::client::error_type::BoxError;

const ALL: Trust = Trust {
    proof: true,
    reqwest: true,
    outermost: false,
};

fn kind(error: impl Into<BoxError>) -> Option<Kind> {
    recognise(&*error.into(), ALL).map(|recognised| recognised.kind)
}

#[derive(Debug)]
struct Wrapped(BoxError);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("wrapped")
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[test]
fn takes_a_refused_connection_as_proof_and_a_reset_as_none() {
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    assert_eq!(
        kind(refused),
        Some(Kind::Transient(Cause::Unprocessed, Processed::No))
    );
    let reset = io::Error::from(io::ErrorKind::ConnectionReset);
    assert_eq!(
        kind(reset),
        Some(Kind::Transient(Cause::Transport, Processed::Unknown))
    );
}

#[test]
fn follows_the_source_chain_and_what_io_errors_wrap() {
    let elapsed = Wrapped(tower::timeout::error::Elapsed::new().into());
    let timed_out = Some(Kind::Transient(Cause::Timeout, Processed::Unknown));
    assert_eq!(kind(elapsed), timed_out);
    let inside_io = io::Error::other(tower::timeout::error::Elapsed::new());
    assert_eq!(kind(inside_io), timed_out);
}

#[test]
fn tells_local_overload_from_the_servers() {
    let shed = tower::load_shed::error::Overloaded::new();
    assert_eq!(kind(shed), Some(Kind::LocalOverload));
}

#[test]
fn does_not_guess_at_an_unknown_error() {
    assert_eq!(kind("something else"), None);
    assert_eq!(kind(io::Error::other("something else")), None);
}

#[test]
fn never_retries_bad_data_such_as_a_failed_handshake() {
    let handshake = io::Error::new(io::ErrorKind::InvalidData, "bad certificate");
    assert_eq!(kind(io::Error::other(handshake)), Some(Kind::Permanent));
}

#[cfg(feature = "http2")]
#[test]
fn does_not_read_other_resets_as_proof() {
    let reset = h2::Error::from(h2::Reason::NO_ERROR);
    assert_eq!(
        kind(reset),
        Some(Kind::Transient(Cause::Transport, Processed::Unknown))
    );
}
