//! Any bytes as `x-retry-attempt`: no panic, and what was read is written so that it is read alike.

#![no_main]

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use tower_retry_budget::deadline::RetryAttempt;

fuzz_target!(|data: &[u8]| {
    let Ok(value) = HeaderValue::from_bytes(data) else {
        return;
    };
    let Some(attempt) = RetryAttempt::parse(&value) else {
        return;
    };
    assert!(attempt.number() >= 1);
    assert!(attempt.max().is_none_or(|max| max >= 1));
    assert_eq!(attempt.is_retry(), attempt.number() >= 2);
    assert_eq!(RetryAttempt::parse(&attempt.write()), Some(attempt));
});
