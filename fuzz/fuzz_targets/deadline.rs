//! Any bytes as a deadline header, and any time written as one: no panic, and never more time than
//! there was.
//!
//! The first byte chooses the codec, the next twelve are a time, the rest is a value.

#![no_main]

use http::{HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use tower_retry_budget::deadline::DeadlineHeader;

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, time @ ..], value)) = data.split_first_chunk::<13>() else {
        return;
    };
    let codec = match choice % 4 {
        0 => DeadlineHeader::default(),
        1 => DeadlineHeader::grpc_timeout(),
        2 => DeadlineHeader::envoy(),
        _ => DeadlineHeader::millis(HeaderName::from_static("x-left")),
    };

    let (seconds, nanos) = time.split_at(8);
    let seconds = u64::from_le_bytes(seconds.try_into().expect("eight bytes"));
    let nanos = u32::from_le_bytes(nanos.try_into().expect("four bytes"));
    for left in [
        Duration::new(seconds, nanos % 1_000_000_000),
        Duration::from_nanos(seconds),
        Duration::from_nanos(nanos.into()),
    ] {
        never_grows(&codec, left);
    }

    let Ok(value) = HeaderValue::from_bytes(value) else {
        return;
    };
    if let Some(left) = codec.parse(&value) {
        assert!(value.as_bytes().trim_ascii()[0].is_ascii_digit());
        never_grows(&codec, left);
    }
});

/// What is written is read as no more than it was, and never as nothing.
fn never_grows(codec: &DeadlineHeader, left: Duration) {
    match codec.write(left) {
        Some(written) => {
            let read = codec.parse(&written).expect("what was written");
            assert!(read <= left, "{written:?} is more than {left:?}");
            assert!(!read.is_zero());
        }
        None => assert!(left < Duration::from_millis(1)),
    }
}
