//! What cannot be reached through the public `read`: vendor fields, and the century of a year.

use super::*;
use http::HeaderValue;

/// Sun, 06 Nov 1994 08:49:37 GMT.
const NOW: u64 = 784_111_777;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    headers
}

fn vendor(name: &'static str, unit: Unit) -> VendorField {
    VendorField::new(HeaderName::from_static(name), unit)
}

fn read_vendor(lines: &[(&'static str, &str)], fields: &[VendorField]) -> Hint {
    read_with(&headers(lines), fields, at(NOW))
}

fn millis(millis: u64) -> Hint {
    Hint::Wait(Duration::from_millis(millis))
}

#[test]
fn a_vendor_field_is_not_read_unless_it_is_listed() {
    let lines = [("retry-after-ms", "1500")];
    assert_eq!(read_vendor(&lines, &[]), Hint::Absent);
    let other = [vendor("x-retry-ms", Unit::Milliseconds)];
    assert_eq!(read_vendor(&lines, &other), Hint::Absent);
    let listed = [vendor("retry-after-ms", Unit::Milliseconds)];
    assert_eq!(read_vendor(&lines, &listed), millis(1500));
}

#[test]
fn a_readable_vendor_field_in_milliseconds_wins_over_the_standard_field() {
    let fields = [vendor("retry-after-ms", Unit::Milliseconds)];
    for (value, wait) in [("1500", 1500), ("9000", 9000), ("0", 0), ("2.0001", 3)] {
        let lines = [("retry-after-ms", value), ("retry-after", "3")];
        assert_eq!(read_vendor(&lines, &fields), millis(wait), "{value}");
    }
}

#[test]
fn an_unreadable_vendor_field_does_not_hide_the_standard_field() {
    let fields = [vendor("retry-after-ms", Unit::Milliseconds)];
    for value in ["abc", "", "-1", "1e3", "Sun, 06 Nov 1994 08:49:40 GMT"] {
        let lines = [("retry-after-ms", value), ("retry-after", "3")];
        assert_eq!(read_vendor(&lines, &fields), millis(3000), "{value}");
    }
}

#[test]
fn an_unreadable_vendor_field_alone_is_malformed_and_not_absent() {
    let fields = [vendor("retry-after-ms", Unit::Milliseconds)];
    let lines = [("retry-after-ms", "abc")];
    assert_eq!(read_vendor(&lines, &fields), Hint::Malformed);
}

#[test]
fn a_vendor_field_no_finer_than_the_standard_one_does_not_shorten_it() {
    let fields = [
        vendor("x-wait", Unit::Seconds),
        vendor("x-reset", Unit::UnixSeconds),
    ];
    let reset = (NOW + 5).to_string();
    let lines = |standard| {
        [
            ("x-wait", "4"),
            ("x-reset", reset.as_str()),
            ("retry-after", standard),
        ]
    };
    assert_eq!(read_vendor(&lines("3"), &fields), millis(5000));
    assert_eq!(read_vendor(&lines("6"), &fields), millis(6000));
}

#[test]
fn of_repeated_vendor_lines_the_longest_counts_in_any_order() {
    let fields = [vendor("retry-after-ms", Unit::Milliseconds)];
    let mut lines = [
        ("retry-after-ms", "10"),
        ("retry-after-ms", "oops"),
        ("retry-after-ms", "700"),
    ];
    assert_eq!(read_vendor(&lines, &fields), millis(700));
    lines.reverse();
    assert_eq!(read_vendor(&lines, &fields), millis(700));
}

#[test]
fn a_policy_that_lists_the_standard_field_decides_its_unit() {
    let lines = [("retry-after", "7")];
    let fields = [vendor("retry-after", Unit::Milliseconds)];
    assert_eq!(read_vendor(&lines, &fields), millis(7));
    assert_eq!(read_vendor(&lines, &[]), millis(7000));

    let unix = (NOW + 120).to_string();
    let lines = [("retry-after", unix.as_str())];
    let fields = [vendor("retry-after", Unit::UnixSeconds)];
    assert_eq!(read_vendor(&lines, &fields), millis(120_000));
    assert_eq!(read_vendor(&lines, &[]), millis((NOW + 120) * 1000));
}

#[test]
fn a_policy_that_lists_the_standard_field_still_has_its_dates_read() {
    let fields = [vendor("retry-after", Unit::Milliseconds)];
    let lines = [("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT")];
    assert_eq!(read_vendor(&lines, &fields), millis(3000));
    let lines = [("retry-after", "soon")];
    assert_eq!(read_vendor(&lines, &fields), Hint::Malformed);
}

#[test]
fn unix_time_is_measured_against_the_date_of_the_response() {
    let fields = [vendor("x-reset", Unit::UnixSeconds)];
    // Ten minutes behind the local clock: trusted. Two days: not.
    for (date, wait) in [
        ("Sun, 06 Nov 1994 08:39:37 GMT", 605),
        ("Fri, 04 Nov 1994 08:49:37 GMT", 5),
        ("no date", 5),
    ] {
        let reset = (NOW + 5).to_string();
        let lines = [("x-reset", reset.as_str()), ("date", date)];
        assert_eq!(read_vendor(&lines, &fields), millis(wait * 1000), "{date}");
    }
    let lines = [("x-reset", "1")];
    assert_eq!(read_vendor(&lines, &fields), millis(0));
    let reset = format!("{NOW}.25");
    let lines = [("x-reset", reset.as_str())];
    assert_eq!(read_vendor(&lines, &fields), millis(1000));
}

#[test]
fn numbers_beyond_the_range_are_a_very_long_wait_in_every_unit() {
    for unit in [Unit::Milliseconds, Unit::Seconds, Unit::UnixSeconds] {
        for value in [
            "18446744073709551615",
            "18446744073709551616",
            "18446744073709551614.5",
            "99999999999999999999999999999999999999999999",
        ] {
            let hint = read_vendor(&[("x-wait", value)], &[vendor("x-wait", unit)]);
            assert_eq!(hint, Hint::Wait(VERY_LONG), "{unit:?} {value}");
        }
    }
    let fields = [vendor("x-wait", Unit::UnixSeconds)];
    let hint = read_vendor(&[("x-wait", "18446744073709551614")], &fields);
    assert!(matches!(hint, Hint::Wait(wait) if wait > Duration::from_secs(u64::MAX / 2)));
}
