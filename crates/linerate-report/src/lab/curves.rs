//! Rows with a curve, over the cores of their servers.

use std::fmt::Write as _;

use super::cells::{cell, figure, value};
use crate::load_page::chart::{self, AREA, Axis, SIZE};
use crate::markup::escape;
use crate::schema::lab::{Group, Row};

/// Classes of the page's style, one for each curve. Reason: no chart has more.
const CLASSES: [&str; 4] = ["b", "a", "good", "bad"];

/// Names of a group's curves, in the order of their rows.
fn names(group: &Group) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in group.rows.iter().filter_map(|row| row.curve.as_deref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(CLASSES.len());
    names
}

/// A metric over the cores of the servers; `None` where no row has a curve, or none the metric.
pub(super) fn over_cores(group: &Group, id: &str, title: &str) -> Option<String> {
    let names = names(group);
    let points = |name: &str| -> Vec<(f64, f64, &Row)> {
        let rows = group.rows.iter().filter(|row| row.curve.as_deref() == Some(name));
        rows.filter_map(|row| Some((f64::from(row.server_cores?), figure(row, id)?, row))).collect()
    };
    let all: Vec<(f64, f64, &Row)> = names.iter().flat_map(|name| points(name)).collect();
    let most = all.iter().map(|p| p.0).fold(0.0, f64::max);
    if all.is_empty() {
        return None;
    }
    let axis = Axis::linear(all.iter().map(|p| p.1), 0.0);
    // Nothing stands at the left edge, and one core alone in the middle.
    let x = |cores: f64| AREA[0] + (AREA[1] - AREA[0]) * cores / (most + 1.0);
    let y = |value: f64| AREA[3] - (AREA[3] - AREA[2]) * axis.share(value);
    let mut svg = chart::open(&format!("{title} over cores of the server"), SIZE[1]);
    chart::grid(&mut svg, &axis, &|tick| value(id, tick, true));
    let mut cores: Vec<f64> = all.iter().map(|p| p.0).collect();
    cores.sort_by(f64::total_cmp);
    cores.dedup();
    for n in cores {
        let unit = if n < 1.5 { "core" } else { "cores" };
        let _ = write!(
            svg,
            r#"<text class="time" x="{:.1}" y="{:.1}" text-anchor="middle">{n:.0} {unit}</text>"#,
            x(n),
            AREA[3] + 17.0
        );
    }
    let mut legend = AREA[0];
    for (name, class) in names.iter().zip(CLASSES) {
        let points = points(name);
        let places: Vec<String> = points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        if places.len() > 1 {
            let _ = write!(svg, r#"<polyline class="path {class}" points="{}"/>"#, places.join(" "));
        }
        for (n, value, row) in &points {
            let _ = write!(
                svg,
                r#"<circle class="mark {class}" cx="{:.1}" cy="{:.1}" r="3"><title>{}: {}</title></circle>"#,
                x(*n),
                y(*value),
                escape(&row.name),
                escape(&cell(row, id, true))
            );
        }
        let _ = write!(svg, r#"<text class="{class}" x="{legend}" y="14">━ {}</text>"#, escape(name));
        legend += 34.0 + 8.0 * name.chars().count() as f64;
    }
    svg.push_str("</svg>");
    Some(svg)
}
