//! `Retry-After` is read as RFC 9110 section 10.2.3 has it, and never as less than was asked.

use http::{
    HeaderMap, HeaderValue,
    header::{DATE, RETRY_AFTER},
};
use proptest::prelude::*;
use std::time::{Duration, SystemTime};
use tower_retry_budget::policy::retry_after::{Hint, read};

/// Sun, 06 Nov 1994 08:49:37 GMT.
const NOW: u64 = 784_111_777;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn headers(lines: &[&[u8]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(
            RETRY_AFTER,
            HeaderValue::from_bytes(line).expect("a field value"),
        );
    }
    headers
}

fn read_at(now: SystemTime, value: &str) -> Hint {
    read(&headers(&[value.as_bytes()]), now)
}

fn read_now(value: &str) -> Hint {
    read_at(at(NOW), value)
}

fn read_dated(now: SystemTime, date: &str, value: &str) -> Hint {
    let mut headers = headers(&[value.as_bytes()]);
    headers.append(DATE, HeaderValue::from_str(date).expect("a field value"));
    read(&headers, now)
}

fn seconds(seconds: u64) -> Hint {
    Hint::Wait(Duration::from_secs(seconds))
}

// Grammar.

#[test]
fn a_response_without_the_field_has_no_hint() {
    assert_eq!(read(&HeaderMap::new(), at(NOW)), Hint::Absent);
}

#[test]
fn reads_digits_as_whole_seconds() {
    for (value, wait) in [("0", 0), ("1", 1), ("007", 7), ("120", 120), ("3600", 3600)] {
        assert_eq!(read_now(value), seconds(wait), "{value}");
    }
}

#[test]
fn rounds_a_decimal_fraction_up_and_never_down() {
    for (value, wait) in [
        ("0.0", 0),
        ("0.503", 1),
        ("2.0", 2),
        ("2.000000000000000000000000000000", 2),
        ("2.000000000000000000000000000001", 3),
        ("2.542", 3),
        ("292.052427053", 293),
        ("9007199254740993.1", 9_007_199_254_740_994),
    ] {
        assert_eq!(read_now(value), seconds(wait), "{value}");
    }
}

#[test]
fn blanks_and_tabs_around_the_value_do_not_matter() {
    assert_eq!(read_now("  \t7 "), seconds(7));
    assert_eq!(read_now("\t Sun, 06 Nov 1994 08:49:47 GMT\t"), seconds(10));
}

#[test]
fn blanks_within_the_value_or_alone_are_malformed() {
    for value in ["", " ", "\t", "1 2", "1\t2", "2 .5", "2. 5", "- 1"] {
        assert_eq!(read_now(value), Hint::Malformed, "{value:?}");
    }
}

#[test]
fn anything_outside_the_grammar_is_malformed() {
    for value in [
        "-1", "-0", "+3", ".5", "5.", ".", "1.2.3", "1e3", "1E3", "0x10", "1_000", "81,120",
        "1, 30", "120junk", "120s", "junk120", "NaN", "inf", "infinity", "soon", "\"5\"", "5;q=1",
        "5,",
    ] {
        assert_eq!(read_now(value), Hint::Malformed, "{value:?}");
    }
}

#[test]
fn bytes_beyond_ascii_are_malformed_and_do_not_panic() {
    let lines: [&[u8]; 5] = [
        b"1\xe4",
        b"\xff",
        "７".as_bytes(),
        "\u{a0}7".as_bytes(),
        "Sun, 06 Nov 1994 08:49:47 GM\u{e9}".as_bytes(),
    ];
    for line in lines {
        assert_eq!(read(&headers(&[line]), at(NOW)), Hint::Malformed);
    }
}

#[test]
fn of_repeated_lines_the_longest_valid_one_counts_in_any_order() {
    let date: &[u8] = b"Sun, 06 Nov 1994 08:50:37 GMT";
    let cases: [(&[&[u8]], Hint); 5] = [
        (&[b"1", b"30"], seconds(30)),
        (&[b"1", b"junk"], seconds(1)),
        (&[b"0", b"\xe4", b"-7"], seconds(0)),
        (&[b"30", date, b"59.2"], seconds(60)),
        (&[b"junk", b""], Hint::Malformed),
    ];
    for (lines, hint) in cases {
        let mut lines = lines.to_vec();
        for _ in 0..lines.len() {
            lines.rotate_left(1);
            assert_eq!(read(&headers(&lines), at(NOW)), hint);
            lines.reverse();
            assert_eq!(read(&headers(&lines), at(NOW)), hint);
            lines.reverse();
        }
    }
}

// Size.

#[test]
fn long_waits_are_read_in_full() {
    for value in [2_147_484, 1_790_000_000, 9_999_999_999, u64::MAX] {
        assert_eq!(read_now(&value.to_string()), seconds(value));
    }
}

#[test]
fn more_digits_than_fit_are_a_very_long_wait_and_not_garbage() {
    let many = "9".repeat(5000);
    for value in ["18446744073709551616", "18446744073709551615.1", &many] {
        assert_eq!(read_now(value), seconds(u64::MAX));
    }
    let zeros = format!("{}5", "0".repeat(5000));
    assert_eq!(read_now(&zeros), seconds(5));
}

// Dates.

#[test]
fn reads_all_three_forms_of_a_date() {
    for value in [
        "Sun, 06 Nov 1994 08:50:37 GMT",
        "Sunday, 06-Nov-94 08:50:37 GMT",
        "Sun Nov  6 08:50:37 1994",
        "Sun Nov 06 08:50:37 1994",
    ] {
        assert_eq!(read_now(value), seconds(60), "{value}");
    }
    // A day of two digits takes the place of the blank.
    assert_eq!(read_now("Wed Nov 16 08:49:37 1994"), seconds(864_000));
}

#[test]
fn a_date_that_is_not_an_http_date_is_malformed() {
    for value in [
        "1 Jan 2099 00:00:00",
        "Wed, 01 Jan 2031 00:00:00 XYZ",
        "Wed, 01 Jan 2031 00:00:00 UTC",
        "Wed, 01 Jan 2031 00:00:00 +0000",
        "Wed, 01 Jan 2031 00:00:00",
        "2031-01-01T00:00:00Z",
        "Wed, 1 Jan 2031 00:00:00 GMT",
        "wed, 01 jan 2031 00:00:00 gmt",
        "Wed,  01 Jan 2031 00:00:00 GMT",
        "Wed, 01 Jan 2031  0:00:00 GMT",
        "Wed, 01 Jan +031 00:00:00 GMT",
        "Wed, 01-Jan-31 00:00:00 GMT",
        "Wednesday, 01-Jan-2031 00:00:00 GMT",
        "Wednesday, 01 Jan 31 00:00:00 GMT",
        "Wedday, 01-Jan-31 00:00:00 GMT",
        "Wed Jan  1 00:00:00 2031 GMT",
        "Wed Jan 1 00:00:00 2031",
        "Wed Jan  0 00:00:00 2031",
        "Wednesday Jan 1 00:00 31",
        "Wed, 01 Jan 2031 00:00:00 GMT, 5",
    ] {
        assert_eq!(read_now(value), Hint::Malformed, "{value}");
    }
}

#[test]
fn a_date_that_is_in_no_calendar_is_malformed() {
    for value in [
        "Thu, 01 Jan 2031 00:00:00 GMT", // a Wednesday
        "Thursday, 01-Jan-31 00:00:00 GMT",
        "Fri, 30 Feb 2035 00:00:00 GMT",
        "Thu, 29 Feb 2035 00:00:00 GMT",
        "Wed, 00 Jan 2031 00:00:00 GMT",
        "Wed, 32 Jan 2031 00:00:00 GMT",
        "Wed, 01 Foo 2031 00:00:00 GMT",
        "Wed, 01 Jan 2031 24:00:00 GMT",
        "Wed, 01 Jan 2031 00:60:00 GMT",
        "Wed, 01 Jan 2031 00:00:61 GMT",
    ] {
        assert_eq!(read_now(value), Hint::Malformed, "{value}");
    }
}

#[test]
fn a_date_that_is_past_is_a_wait_of_zero() {
    for value in [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Fri, 31 Dec 1999 23:59:59 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Wed, 31 Dec 1969 23:59:59 GMT",
        "Mon, 01 Jan 1900 00:00:00 GMT",
        "Mon, 01 Jan 0001 00:00:00 GMT",
    ] {
        assert_eq!(read_at(at(1_800_000_000), value), seconds(0), "{value}");
    }
}

#[test]
fn the_last_second_that_can_be_written_is_read() {
    let last = 253_402_300_799;
    let hint = read_now("Fri, 31 Dec 9999 23:59:59 GMT");
    assert_eq!(hint, seconds(last - NOW));
    assert_eq!(
        read_now("Fri, 31 Dec 9999 23:59:60 GMT"),
        seconds(last + 1 - NOW)
    );
}

#[test]
fn a_leap_second_ends_when_the_next_minute_begins() {
    let now = at(1_483_228_790); // Sat, 31 Dec 2016 23:59:50 GMT
    for value in [
        "Sat, 31 Dec 2016 23:59:60 GMT",
        "Saturday, 31-Dec-16 23:59:60 GMT",
        "Sat Dec 31 23:59:60 2016",
        "Sun, 01 Jan 2017 00:00:00 GMT",
    ] {
        assert_eq!(read_at(now, value), seconds(10), "{value}");
    }
    assert_eq!(read_at(now, "Sat, 31 Dec 2016 23:59:59 GMT"), seconds(9));
}

#[test]
fn a_two_digit_year_is_never_in_the_first_century() {
    let now = at(1_599_767_990); // Thu, 10 Sep 2020 19:59:50 GMT
    assert_eq!(
        read_at(now, "Thursday, 10-Sep-20 20:00:00 GMT"),
        seconds(10)
    );
}

#[test]
fn a_two_digit_year_is_at_most_fifty_years_ahead() {
    let now = at(1_599_767_990); // Thu, 10 Sep 2020 19:59:50 GMT
    let fifty_years = 3_177_604_790 - 1_599_767_990;
    // Wed, 10 Sep 2070 19:59:50 GMT is fifty years ahead, and read.
    assert_eq!(
        read_at(now, "Wednesday, 10-Sep-70 19:59:50 GMT"),
        seconds(fifty_years)
    );
    // One second more, and it is Thu, 10 Sep 1970: with the day of the week of 2070 it is none.
    assert_eq!(read_at(now, "Thursday, 10-Sep-70 19:59:51 GMT"), seconds(0));
    assert_eq!(
        read_at(now, "Wednesday, 10-Sep-70 19:59:51 GMT"),
        Hint::Malformed
    );
    assert_eq!(read_at(now, "Friday, 31-Dec-99 23:59:59 GMT"), seconds(0));
}

#[test]
fn a_two_digit_year_may_be_in_the_next_century() {
    let now = at(4_102_444_790); // Thu, 31 Dec 2099 23:59:50 GMT
    assert_eq!(read_at(now, "Friday, 01-Jan-00 00:00:00 GMT"), seconds(10));
    assert_eq!(read_at(now, "Thursday, 31-Dec-99 23:59:55 GMT"), seconds(5));
    // And the seventies need not be those of 1970.
    let now = at(3_145_737_600); // Sat, 07 Sep 2069 00:00:00 GMT
    let hint = read_at(now, "Wednesday, 01-Jan-70 00:00:00 GMT");
    assert_eq!(hint, seconds(3_155_760_000 - 3_145_737_600));
}

#[test]
fn a_date_is_measured_against_the_date_of_the_response() {
    let (date, value) = (
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:50:07 GMT",
    );
    let day = 24 * 60 * 60;
    for off in [0, 600, day] {
        assert_eq!(read_dated(at(NOW + off), date, value), seconds(30), "{off}");
        assert_eq!(read_dated(at(NOW - off), date, value), seconds(30), "{off}");
    }
    for date in [
        "Sunday, 06-Nov-94 08:49:37 GMT",
        " Sun Nov  6 08:49:37 1994 ",
    ] {
        assert_eq!(
            read_dated(at(NOW + 600), date, value),
            seconds(30),
            "{date}"
        );
    }
}

#[test]
fn a_date_is_measured_against_the_local_clock_when_the_response_has_none_to_trust() {
    let value = "Sun, 06 Nov 1994 08:50:07 GMT";
    for date in [
        "Sat, 05 Nov 1994 08:49:36 GMT", // a day and a second behind
        "Mon, 07 Nov 1994 08:49:38 GMT", // a day and a second ahead
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "1994-11-06T08:49:37Z",
        "784111777",
        "",
    ] {
        assert_eq!(read_dated(at(NOW), date, value), seconds(30), "{date}");
    }
}

#[test]
fn the_date_of_the_response_does_not_change_a_number_of_seconds() {
    let hint = read_dated(at(NOW), "Sun, 06 Nov 1994 08:39:37 GMT", "30");
    assert_eq!(hint, seconds(30));
}

#[test]
fn of_repeated_dates_the_earliest_counts_in_any_order() {
    let mut dates = [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:48:37 GMT",
        "none",
        "Wed, 02 Nov 1994 08:49:37 GMT",
    ];
    for _ in 0..dates.len() {
        dates.rotate_left(1);
        let mut headers = headers(&[b"Sun, 06 Nov 1994 08:50:07 GMT"]);
        for date in dates {
            headers.append(DATE, HeaderValue::from_static(date));
        }
        assert_eq!(read(&headers, at(NOW)), seconds(90));
    }
}

#[test]
fn a_wait_measured_from_the_local_clock_keeps_its_fraction() {
    let now = at(NOW) + Duration::from_nanos(250_000_001);
    let hint = read_at(now, "Sun, 06 Nov 1994 08:49:39 GMT");
    assert_eq!(hint, Hint::Wait(Duration::from_nanos(1_749_999_999)));
}

#[test]
fn clocks_at_the_ends_of_time_do_not_panic() {
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let far = Duration::from_secs(i64::MAX.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    for now in [
        epoch.checked_sub(far),
        epoch.checked_sub(year * 3000),
        epoch.checked_sub(Duration::from_nanos(1)),
        Some(epoch),
        epoch.checked_add(year * 7990),
        epoch.checked_add(year * 9000),
        epoch.checked_add(far),
    ]
    .into_iter()
    .flatten()
    {
        for value in [
            "5",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Fri, 31 Dec 9999 23:59:60 GMT",
            "Mon, 01 Jan 0001 00:00:00 GMT",
        ] {
            read_at(now, value);
            read_dated(now, value, value);
        }
    }
}

// Zones.

/// Runs alone in a process of its own, in zones that a local reading would get wrong.
#[test]
fn the_zone_of_the_process_does_not_matter() {
    const MARK: &str = "RETRY_AFTER_TEST_ZONE";
    if std::env::var_os(MARK).is_some() {
        let now = at(1_593_120_492); // Thu, 25 Jun 2020 21:28:12 GMT
        for value in [
            "Thu, 25 Jun 2020 21:30:12 GMT",
            "Thursday, 25-Jun-20 21:30:12 GMT",
            "Thu Jun 25 21:30:12 2020",
        ] {
            assert_eq!(read_at(now, value), seconds(120), "{value}");
        }
        return;
    }
    for zone in ["America/New_York", "XST-13", "UTC"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_zone_of_the_process_does_not_matter"])
            .env("TZ", zone)
            .env(MARK, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{zone}: {said}");
        assert!(said.contains("1 passed"), "{zone}: {said}");
    }
}

// Properties.

/// The text of `time` in the RFC 850 form and in that of asctime.
fn old_forms(time: SystemTime) -> [String; 2] {
    let imf = httpdate::fmt_http_date(time);
    let (weekday, day, month, year, clock) = (
        &imf[..3],
        &imf[5..7],
        &imf[8..11],
        &imf[12..16],
        &imf[17..25],
    );
    let long = match weekday {
        "Tue" => "Tues",
        "Wed" => "Wednes",
        "Thu" => "Thurs",
        "Sat" => "Satur",
        short => short,
    };
    let blank_day = day
        .strip_prefix('0')
        .map_or(day.to_owned(), |d| format!(" {d}"));
    [
        format!("{long}day, {day}-{month}-{} {clock} GMT", &year[2..]),
        format!("{weekday} {month} {blank_day} {clock} {year}"),
    ]
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let near_date = "[A-Za-z]{3,9},? [0-9 ]{1,2}[ -][A-Z][a-z]{2}[ -][0-9]{2,4} [0-9:]{8}( GMT)?";
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[0-9+. \t,e-]{0,30}".prop_map(String::into_bytes),
        near_date.prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn never_panics_and_never_depends_on_the_order(
        lines in prop::collection::vec(line(), 0..4),
        date in prop::option::of(line()),
        now in 0_u64..300_000_000_000,
    ) {
        let mut headers = HeaderMap::new();
        let mut reversed = HeaderMap::new();
        let values = |line: &Vec<u8>| HeaderValue::from_bytes(line).ok();
        for value in lines.iter().filter_map(values) {
            headers.append(RETRY_AFTER, value);
        }
        for value in lines.iter().rev().filter_map(values) {
            reversed.append(RETRY_AFTER, value);
        }
        if let Some(value) = date.as_ref().and_then(values) {
            headers.append(DATE, value.clone());
            reversed.append(DATE, value);
        }
        let hint = read(&headers, at(now));
        prop_assert_eq!(hint, read(&reversed, at(now)));
        prop_assert_eq!(hint == Hint::Absent, !headers.contains_key(RETRY_AFTER));
    }

    #[test]
    fn digits_are_read_exactly(wait: u64, zeros in 0_usize..30) {
        let value = format!("{}{wait}", "0".repeat(zeros));
        prop_assert_eq!(read_now(&value), seconds(wait));
    }

    #[test]
    fn decimals_are_less_than_a_second_more_than_asked(
        whole in 0..u64::MAX,
        fraction in "[0-9]{1,40}",
    ) {
        let rounded_up = whole + u64::from(fraction.bytes().any(|digit| digit != b'0'));
        prop_assert_eq!(read_now(&format!("{whole}.{fraction}")), seconds(rounded_up));
    }

    #[test]
    fn dates_are_never_earlier_than_asked(
        now in 0_u64..250_000_000_000,
        nanos in 0_u32..1_000_000_000,
        ahead in 0_u64..1_500_000_000,
    ) {
        let now = at(now) + Duration::from_nanos(nanos.into());
        let then = now + Duration::from_secs(ahead);
        let text = httpdate::fmt_http_date(then);
        let wait = httpdate::parse_http_date(&text)
            .unwrap()
            .duration_since(now)
            .unwrap_or_default();
        prop_assert_eq!(read_at(now, &text), Hint::Wait(wait));
        for text in old_forms(then) {
            prop_assert_eq!(read_at(now, &text), Hint::Wait(wait), "{}", text);
        }
    }

    #[test]
    fn dates_that_are_past_are_a_wait_of_zero(
        now in 1_600_000_000_u64..250_000_000_000,
        ago in 0_u64..1_500_000_000,
    ) {
        let then = at(now - ago);
        prop_assert_eq!(read_at(at(now), &httpdate::fmt_http_date(then)), seconds(0));
        for text in old_forms(then) {
            prop_assert_eq!(read_at(at(now), &text), seconds(0), "{}", text);
        }
    }
}
