//! Plots as SVG.

use super::figure::{Axis, Panel, shown};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::fmt::Display;

/// Width and height.
const SIZE: (u32, u32) = (720, 380);
/// Told apart by most people, also in print.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x1b, 0x6c, 0xa8),
    RGBColor(0xd9, 0x5f, 0x02),
    RGBColor(0x2e, 0x8b, 0x57),
    RGBColor(0x99, 0x33, 0x99),
    RGBColor(0xb3, 0x1b, 0x1b),
    RGBColor(0x66, 0x66, 0x66),
    RGBColor(0xb8, 0x86, 0x0b),
    RGBColor(0x20, 0xa0, 0xa0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn color(place: usize) -> RGBColor {
    COLORS[place % COLORS.len()]
}

fn failed(error: impl Display) -> anyhow::Error {
    anyhow!("a plot could not be drawn: {error}")
}

/// The plot of a panel.
pub fn svg(panel: &Panel) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        match panel.axis {
            Axis::Numbers => lines(panel, &area),
            Axis::Names => bars(panel, &area),
        }?;
        area.present().map_err(failed)?;
    }
    Ok(text)
}

fn lines(panel: &Panel, area: &Area<'_>) -> Result<()> {
    let last = panel.places().last().map_or(1.0, |place| place.0);
    let top = (panel.largest() * 1.08).max(f64::MIN_POSITIVE);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(84)
        .caption(&panel.title, ("sans-serif", 16))
        .build_cartesian_2d(0.0..last * 1.02, 0.0..top)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(panel.x_label)
        .y_desc(panel.y_label)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| shown(*y))
        .draw()
        .map_err(failed)?;
    for (place, series) in panel.series.iter().enumerate() {
        let color = color(place);
        let points = series.points.iter().map(|point| (point.x, point.y));
        chart
            .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))
            .map_err(failed)?
            .label(&series.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], color.filled()));
        chart.draw_series(points.map(|point| Circle::new(point, 3, color.filled()))).map_err(failed)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(failed)
}

fn bars(panel: &Panel, area: &Area<'_>) -> Result<()> {
    let places = panel.places();
    let names: Vec<&str> = places.iter().map(|place| place.1).collect();
    let top = (panel.largest() * 1.25).max(f64::MIN_POSITIVE);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(84)
        .caption(&panel.title, ("sans-serif", 16))
        .build_cartesian_2d(-0.5..names.len() as f64 - 0.5, 0.0..top)
        .map_err(failed)?;
    let name = |x: &f64| {
        let is_whole = (x - x.round()).abs() < 0.01 && *x > -0.01;
        let name = names.get(x.round() as usize).filter(|_| is_whole);
        name.map_or(String::new(), |name| (*name).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(2 * names.len() + 1)
        .x_desc(panel.x_label)
        .y_desc(panel.y_label)
        .x_label_formatter(&name)
        .y_label_formatter(&|y| shown(*y))
        .draw()
        .map_err(failed)?;
    let width = 0.8 / panel.series.len().max(1) as f64;
    for (number, series) in panel.series.iter().enumerate() {
        let color = color(number);
        let bars = series.points.iter().filter_map(|point| {
            let place = places.iter().position(|place| place.0 == point.x)?;
            let left = place as f64 - 0.4 + number as f64 * width;
            let corners = [(left, 0.0), (left + width * 0.92, point.y)];
            Some(Rectangle::new(corners, color.filled()))
        });
        chart
            .draw_series(bars)
            .map_err(failed)?
            .label(&series.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(failed)
}
