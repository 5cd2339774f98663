"""The page's style sheet: one column of serif text, sans-serif figures, two palettes, no external resource."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --paper: #fcfbf8; --ink: #202225; --soft: #62666b; --rule: #e3e0d8; --fill: #f4f2ec;
  --accent: #275a84; --wrong: #a04a36; --quiet: #84898e;
  --c: #6b6f73; --k: #275a84; --s: #4c6b2f; --n: #8a5a16; --d: #6a3f78;
  --serif: Charter, "Bitstream Charter", "Sitka Text", Cambria, "Noto Serif", Georgia, serif;
  --sans: system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #17191b; --ink: #dcdad4; --soft: #a0a3a5; --rule: #303437; --fill: #1e2123;
    --accent: #8cb6d8; --wrong: #d99079; --quiet: #7d8286;
    --c: #989c9f; --k: #8cb6d8; --s: #a9c48a; --n: #d9b27c; --d: #c8a2d6;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1.0625rem/1.6 var(--serif); overflow-x: clip; }
main { width: min(100% - 2.5rem, 64rem); margin: 0 auto; padding: 4.5rem 0 6rem; }
p, dl, ul { max-width: 42rem; margin: 0 0 1rem; }
h1 { font-size: clamp(2rem, 6vw, 3rem); line-height: 1.12; letter-spacing: -.015em; font-weight: 600;
  margin: .5rem 0 1rem; text-wrap: balance; }
h2 { font-size: 1.5rem; line-height: 1.25; font-weight: 600; letter-spacing: -.005em; margin: 4rem 0 1rem; }
h3 { font: 600 .8125rem/1.4 var(--sans); color: var(--soft); margin: 2rem 0 .5rem; }
a { color: var(--accent); }
.over { font: 500 .875rem/1.4 var(--sans); color: var(--soft); margin: 0; overflow-wrap: anywhere; }
.interval { font-size: 1.25rem; line-height: 1.5; margin: 0 0 .25rem; font-variant-numeric: lining-nums tabular-nums; }
.interval + p:not(.interval) { margin-top: 1rem; }
.soft { color: var(--soft); }
code, pre { font-family: var(--mono); font-size: .8125rem; line-height: 1.55; }
p code, li code, dd code { font-size: .85em; overflow-wrap: anywhere; }
pre { margin: 0; padding: 1rem 1.125rem; background: var(--fill); border-radius: 4px; overflow: auto; tab-size: 4; }
.scroll { overflow: auto; }
.tall { max-height: 34rem; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }

table { border-collapse: collapse; width: 100%; font: .875rem/1.45 var(--sans);
  font-variant-numeric: tabular-nums lining-nums; }
caption { text-align: left; color: var(--soft); padding: 0 0 .5rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem 1.25rem .4rem 0; font-weight: 400;
  border-bottom: 1px solid var(--rule); }
th:last-child, td:last-child { padding-right: 0; }
thead th, thead td { color: var(--soft); font-weight: 500; border-bottom-color: var(--quiet); white-space: nowrap; }
.tall thead th, .tall thead td { position: sticky; top: 0; background: var(--paper); z-index: 1; }
td.num, th.num { text-align: right; white-space: nowrap; }
td.cut { min-width: 12rem; overflow-wrap: anywhere; }
td.fixed { white-space: nowrap; }
td code { font-size: .8125rem; overflow-wrap: anywhere; }
tr.won td, tr.won th { background: color-mix(in srgb, var(--accent) 9%, transparent); }
td .wrong { color: var(--wrong); }
td small, th small { display: block; font-size: .8125rem; color: var(--soft); }
.bar { display: block; height: .5rem; margin-top: .375rem; min-width: 1px; background: var(--quiet); }
.bar.ours { background: var(--accent); }
td.room { width: 38%; }
.arms { max-width: 46rem; margin: 2rem 0; }

dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1.25rem; max-width: 46rem;
  font: .875rem/1.5 var(--sans); }
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
ul.plain { padding-left: 1.1rem; }
details { margin: 1rem 0; max-width: 100%; }
summary { font: .875rem/1.6 var(--sans); color: var(--soft); cursor: pointer; }
details > pre { margin-top: .5rem; }

figure { margin: 0; }
figcaption { font: .875rem/1.5 var(--sans); color: var(--soft); max-width: 46rem; margin-top: .5rem; }
svg { display: block; width: 100%; min-width: 34rem; height: auto; font: 12px var(--sans);
  font-variant-numeric: tabular-nums; }
svg text { fill: var(--soft); }
.tick-y, .label-x { text-anchor: end; }
.tick-x { text-anchor: middle; }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--quiet); stroke-width: 1; }
.level { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 4; }
.best { fill: none; stroke: var(--accent); stroke-width: 1.5; opacity: .55; }
.mark circle { fill: var(--quiet); stroke: var(--paper); stroke-width: 1; }
.mark .whisker { stroke: var(--quiet); stroke-width: 1.25; }
.mark.faster circle { fill: var(--accent); }
.mark.faster .whisker, .mark.confirmed .whisker { stroke: var(--accent); }
.mark.confirmed circle { fill: none; stroke: var(--accent); stroke-width: 1.75; }
.mark.failed { fill: none; stroke: var(--wrong); stroke-width: 1.5; }
.mark.untimed { fill: var(--paper); stroke: var(--quiet); stroke-width: 1.25; }

.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); gap: 1rem 2rem; }
.curves svg { min-width: 0; }
.curves h3 { margin-top: 1rem; }
.series .line { fill: none; stroke: var(--line); stroke-width: 1.75; stroke-linejoin: round; }
.series .faint { fill: none; stroke: var(--line); stroke-width: 1; opacity: .3; }
.series circle { fill: var(--line); }
svg text.name { fill: var(--line); }
.c0 { --line: var(--accent); } .c1 { --line: var(--wrong); } .c2 { --line: var(--s); } .c3 { --line: var(--d); }
.c4 { --line: var(--n); } .c5 { --line: var(--quiet); }

.pair { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1.5rem;
  margin-inline: calc((min(64rem, 100vw - 2.5rem) - min(88rem, 100vw - 2.5rem)) / 2); }
.pair.one { grid-template-columns: minmax(0, 1fr); margin-inline: 0; }
.pair h3 { margin-top: 0; }
.pair pre { max-height: 44rem; }
pre .c { color: var(--c); font-style: italic; } pre .k { color: var(--k); } pre .s { color: var(--s); }
pre .n { color: var(--n); } pre .d { color: var(--d); }
footer { margin-top: 5rem; padding-top: 1rem; border-top: 1px solid var(--rule); font: .8125rem/1.5 var(--sans);
  color: var(--soft); }

@media (max-width: 50rem) {
  body { font-size: 1rem; }
  main { padding-top: 2.5rem; }
  h2 { margin-top: 3rem; }
  .pair { grid-template-columns: minmax(0, 1fr); }
  .pair section + section { margin-top: .5rem; }
  dl.facts { grid-template-columns: minmax(0, 1fr); gap: 0; }
  dl.facts dd { margin-bottom: .6rem; }
  td.room { width: 24%; }
}
@media (max-width: 34rem) {
  table { font-size: .75rem; }
  th, td { padding: .35rem .5rem .35rem 0; }
  thead th, thead td, td.num, th.num, td.fixed { white-space: normal; }
  td.cut, th.cut { min-width: 0; }
  td code, th code { font-size: .6875rem; overflow-wrap: anywhere; }
  td small, th small { font-size: .6875rem; overflow-wrap: anywhere; }
  td.room { display: none; }
  svg { min-width: 0; }
}
@media print { .tall, .pair pre { max-height: none; } pre { white-space: pre-wrap; } h2 { break-after: avoid; } }
"""
