-- LÖVE's settings for the painter: a window twice as large as its pictures, drawn as often as the screen shows it.
function love.conf(t)
  t.identity = "moonferry-painter"
  t.window.title, t.window.width, t.window.height = "A model on a worker thread", 512, 512
  t.modules.audio, t.modules.sound, t.modules.physics, t.modules.joystick = false, false, false, false
end
