"""Pictures of layouts, plans and meshes, as text and SVG; they fill the slots of the rooms below."""

from shardwise.layout.layout import draw_layout
from shardwise.layout.notebook import draw_svg, draw_table, plain_text
from shardwise.pictures import drawing

draw_svg.fill(lambda value: drawing.picture(value).svg)
draw_table.fill(drawing.table)
plain_text.fill(drawing.plain)
draw_layout.fill(drawing.layout_text)
