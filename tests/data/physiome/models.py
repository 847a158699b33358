"""Small CellML models for tests."""

MATHML = 'xmlns="http://www.w3.org/1998/Math/MathML"'

OSCILLATOR = """<?xml version="1.0"?>
<model xmlns="http://www.cellml.org/cellml/1.0#" xmlns:cellml="http://www.cellml.org/cellml/1.0#"
       xmlns:cmeta="http://www.cellml.org/metadata/1.0#" name="oscillator" cmeta:id="twice">
  <documentation xmlns="http://cellml.org/tmp-documentation"><title id="1 bad id">x</title></documentation>
  <component name="clock"><variable name="time" units="second" public_interface="out"/></component>
  <component name="spring" cmeta:id="twice">
    <variable name="time" units="second" public_interface="in"/>
    <variable name="x" units="dimensionless" initial_value="1.0"/>
    <variable name="v" units="dimensionless" initial_value="0.5"/>
    <variable name="k" units="dimensionless" initial_value="{k}"/>
    <variable name="k_double" units="dimensionless"/>
    <math {mathml} id="0 bad id">
      <apply><eq/><apply><diff/><bvar><ci>time</ci></bvar><ci>x</ci></apply>
        <apply><times/><ci>v</ci><cn cellml:units="{unit}">{one}</cn></apply></apply>
      <apply><eq/><apply><diff/><bvar><ci>time</ci></bvar><ci>v</ci></apply>
        <apply><minus/><apply><times/><ci>k_double</ci><ci>x</ci></apply></apply></apply>
      <apply id="0 bad id"><eq/><ci>k_double</ci>
        <apply><times/><cn cellml:units="dimensionless">2</cn><ci>k</ci></apply></apply>
    </math>
  </component>
  {extra}
  <connection><map_components component_1="clock" component_2="spring"/>
    <map_variables variable_1="time" variable_2="time"/></connection>
</model>
"""


def oscillator(*, k: str = "2.0", one: str = "1", unit: str = "dimensionless", extra: str = "") -> str:
    """x' = one · v, v' = −2k x; two states, the constant k and the derived constant k_double."""
    return OSCILLATOR.format(mathml=MATHML, k=k, one=one, unit=unit, extra=extra)


def as_version_1_1(text: str) -> str:
    return text.replace("cellml/1.0#", "cellml/1.1#")


def importing(href: str, before: str = "", connect: bool = False) -> str:
    """A CellML 1.1 model that imports the component `spring`, connected to a clock of its own on demand."""
    connection = """<connection><map_components component_1="clock" component_2="spring"/>
        <map_variables variable_1="time" variable_2="time"/></connection>"""
    return f"""<?xml version="1.0"?>
<model xmlns="http://www.cellml.org/cellml/1.1#" xmlns:xlink="http://www.w3.org/1999/xlink" name="parent">
  <import xlink:href="{href}"><component name="spring" component_ref="spring"/></import>
  {before}
  {connection if connect else ""}
</model>
"""
