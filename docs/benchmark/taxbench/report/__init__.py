"""Reports drawn from a bundle and its summary: `report.md` and the self-contained `report.html`."""
