"""How far each log is archived, so that nothing is removed before it is."""
