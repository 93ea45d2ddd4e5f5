-- slots: every schedule that ever fired, and for which slot it fired last.
SELECT name, slot FROM schedule ORDER BY name
