//! The run as a drawing: one panel for each quantity, all over the same seconds.

use crate::{claims::MOST_SCRIPT_CALLS, report::Report};
use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::{error::Error, ops::Range, path::Path};

const SIZE: (u32, u32) = (1000, 1300);
const TITLE_HEIGHT: u32 = 66;
const FONT: &str = "sans-serif";

/// How dark the phases are. Where both hold, both are laid over each other.
const DOWN: f64 = 0.13;
const FROZEN: f64 = 0.22;

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Points = Vec<(f64, f64)>;

/// A quantity, and the line that it is compared with.
struct Quantity<'a> {
    unit: &'a str,
    label: &'a str,
    points: Points,
    /// Drawn with dashes.
    beside: (String, Points),
    mark_phases: bool,
}

pub(crate) fn draw(report: &Report, file: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, rest) = root.split_vertically(TITLE_HEIGHT);
    let line =
        |text: String, y, size| title.draw(&Text::new(text, (20, y), (FONT, size).into_font()));
    line(
        format!("One retry budget for {} processes", report.processes()),
        10,
        24,
    )?;
    line(
        "light grey: the dependency is down; darker: Redis is frozen; darkest: both".to_owned(),
        42,
        15,
    )?;

    let quantities = quantities(report);
    for (panel, quantity) in rest
        .split_evenly((quantities.len(), 1))
        .iter()
        .zip(&quantities)
    {
        draw_panel(panel, report, quantity)?;
    }
    root.present()?;
    Ok(())
}

fn quantities(report: &Report) -> Vec<Quantity<'static>> {
    let seconds = report.schedule().seconds();
    let per_second = |count: &dyn Fn(u32) -> f64| -> Points {
        // A count belongs to the middle of its second.
        let points = (0..seconds).map(|second| (f64::from(second) + 0.5, count(second)));
        points.collect()
    };
    let totals = |second: u32| report.in_seconds(second..second + 1);
    let level = |amount: f64| vec![(0.0, amount), (f64::from(seconds), amount)];
    let cap = f64::from(report.cap());
    // A state is that of the end of its second.
    let ends = report.seconds().iter().zip(1u32..);
    let balance = ends
        .clone()
        .map(|(second, end)| (f64::from(end), second.balance));
    let in_fleet = ends.map(|(second, end)| (f64::from(end), f64::from(second.in_fleet)));
    let processes = f64::from(report.processes());
    vec![
        Quantity {
            unit: "requests per second",
            label: "attempts",
            points: per_second(&|second| totals(second).attempts as f64),
            beside: (
                "calls".to_owned(),
                per_second(&|second| totals(second).calls as f64),
            ),
            mark_phases: true,
        },
        Quantity {
            unit: "tokens",
            label: "balance (frozen: sum of the local shares)",
            points: balance.collect(),
            beside: (format!("cap without load: {cap}"), level(cap)),
            mark_phases: false,
        },
        Quantity {
            unit: "retries per second",
            label: "retries granted",
            points: per_second(&|second| totals(second).spent as f64),
            beside: ("what trickles in: 1 per second".to_owned(), level(1.0)),
            mark_phases: false,
        },
        Quantity {
            unit: "processes",
            label: "in fleet mode (the others: local_share)",
            points: in_fleet.collect(),
            beside: (format!("all {processes}"), level(processes)),
            mark_phases: false,
        },
        Quantity {
            unit: "calls per s and process",
            label: "script calls that Redis ran",
            points: per_second(&|second| report.script_calls(second) as f64 / processes),
            beside: (
                format!("limit over 10 s: {MOST_SCRIPT_CALLS}"),
                level(MOST_SCRIPT_CALLS),
            ),
            mark_phases: false,
        },
    ]
}

fn draw_panel(
    panel: &Panel<'_>,
    report: &Report,
    quantity: &Quantity<'_>,
) -> Result<(), Box<dyn Error>> {
    let points = quantity.points.iter().chain(&quantity.beside.1);
    // Room above the lines for what they are called.
    let top = points.fold(1.0, |top: f64, point| top.max(point.1)) * 1.45;
    let seconds = f64::from(report.schedule().seconds());
    let mut chart = ChartBuilder::on(panel)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..seconds, 0.0..top)?;
    shade(&mut chart, report, top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .x_desc("time in seconds")
        .y_desc(quantity.unit)
        .x_labels(15)
        .y_labels(6)
        .x_label_formatter(&|second| format!("{second:.0}"))
        .y_label_formatter(&|amount| format!("{amount}"))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    if quantity.mark_phases {
        name_phases(&mut chart, report, top)?;
    }

    let solid = BLACK.stroke_width(2);
    let line = quantity.points.iter().copied();
    let dots = line
        .clone()
        .map(|point| Circle::new(point, 3, BLACK.filled()));
    chart
        .draw_series(LineSeries::new(line, solid))?
        .label(quantity.label)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], solid));
    chart.draw_series(dots)?;
    let (label, points) = &quantity.beside;
    let points = points.iter().copied();
    chart
        .draw_series(DashedLineSeries::new(points, 7, 5, solid))?
        .label(label)
        .legend(move |at| {
            EmptyElement::at(at)
                + PathElement::new([(0, 0), (9, 0)], solid)
                + PathElement::new([(14, 0), (24, 0)], solid)
        });
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}

fn shade(chart: &mut Chart<'_, '_>, report: &Report, top: f64) -> Result<(), Box<dyn Error>> {
    let schedule = report.schedule();
    let phases = [
        (schedule.first_outage(), DOWN),
        (schedule.second_outage(), DOWN),
        (schedule.frozen(), FROZEN),
    ];
    chart.draw_series(phases.map(|(phase, darkness)| {
        let corners = [(f64::from(phase.start), 0.0), (f64::from(phase.end), top)];
        Rectangle::new(corners, BLACK.mix(darkness).filled())
    }))?;
    Ok(())
}

fn name_phases(chart: &mut Chart<'_, '_>, report: &Report, top: f64) -> Result<(), Box<dyn Error>> {
    let schedule = report.schedule();
    let style = (FONT, 14)
        .into_text_style(&SIZE)
        .pos(Pos::new(HPos::Center, VPos::Center));
    let middle = |phase: Range<u32>| f64::from(phase.start + phase.end) / 2.0;
    let names = [
        (schedule.first_outage(), "dependency down", 0.08),
        (schedule.frozen(), "Redis frozen", 0.18),
        (schedule.second_outage(), "dependency down", 0.08),
    ];
    chart.draw_series(names.map(|(phase, name, height)| {
        Text::new(name, (middle(phase), top * height), style.clone())
    }))?;
    Ok(())
}
