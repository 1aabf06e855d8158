//! Any bytes as `Retry-After` and `Date`: no panic, and never less than was asked.
//!
//! The first eight bytes are the local clock, the rest is lines: the first is the `Date`, each
//! other a `Retry-After`.

#![no_main]

use http::{
    HeaderMap, HeaderValue,
    header::{DATE, RETRY_AFTER},
};
use libfuzzer_sys::fuzz_target;
use std::time::{Duration, SystemTime};
use tower_retry_budget::policy::retry_after::{Hint, read};

fuzz_target!(|data: &[u8]| {
    let Some((clock, data)) = data.split_first_chunk() else {
        return;
    };
    let clock = Duration::from_millis(u64::from_le_bytes(*clock));
    let Some(now) = SystemTime::UNIX_EPOCH.checked_add(clock) else {
        return;
    };

    let mut lines = data.split(|&byte| byte == b'\n');
    let mut headers = HeaderMap::new();
    if let Some(Ok(date)) = lines.next().map(HeaderValue::from_bytes) {
        headers.append(DATE, date);
    }
    let mut asked = None;
    for line in lines {
        let Ok(value) = HeaderValue::from_bytes(line) else {
            continue;
        };
        headers.append(RETRY_AFTER, value);
        asked = asked.max(seconds(line));
    }

    let hint = read(&headers, now);
    assert_eq!(hint == Hint::Absent, !headers.contains_key(RETRY_AFTER));
    if let Some(asked) = asked {
        let asked = Duration::from_secs(asked);
        match hint {
            Hint::Wait(wait) if headers.get_all(RETRY_AFTER).iter().count() == 1 => {
                assert_eq!(wait, asked);
            }
            Hint::Wait(wait) => assert!(wait >= asked, "{wait:?} is less than {asked:?}"),
            other => panic!("{asked:?} was read as {other:?}"),
        }
    }
});

/// The number, if the line is nothing else and it fits.
fn seconds(line: &[u8]) -> Option<u64> {
    let digits = line.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(line).ok()?.parse().ok())?
}
